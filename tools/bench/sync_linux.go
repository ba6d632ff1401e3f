package main

import (
	"os"
	"syscall"
)

// syncData syncs a file as PostgreSQL syncs its WAL at each commit.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
