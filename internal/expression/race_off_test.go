//go:build !race

package expression_test

// slowdown is what the race detector makes of a time limit.
const slowdown = 1
