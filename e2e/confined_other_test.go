//go:build !linux

package e2e

func confinedProgram([]string) int { return 2 }
