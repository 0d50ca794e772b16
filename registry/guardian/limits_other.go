//go:build !linux || !cgo

package guardian

// Limits returns "": see the one for Linux.
func Limits() string { return "" }
