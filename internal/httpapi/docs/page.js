SwaggerUIBundle({
    dom_id: "#swagger-ui",
    url: "/openapi.json",
    deepLinking: true,
    defaultModelsExpandDepth: -1, // schemas are shown where they are used
    showExtensions: true,
    showCommonExtensions: true,
    validatorUrl: null,
});
