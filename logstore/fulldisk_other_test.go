//go:build !linux

package logstore

// helperTmpfs needs Linux; see fulldisk_linux_test.go.
func helperTmpfs() int { return 2 }
