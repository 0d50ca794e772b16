//go:build race

package e2e

// raceDetector: pmcp is built as the tests are.
const raceDetector = true
