package main

import (
	"os"
	"syscall"
)

// syncData is what PostgreSQL does to its log at every commit.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
