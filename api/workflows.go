package api

func workflowRoutes(*Server) {}
