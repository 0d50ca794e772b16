//go:build !race

package e2e

// raceDetector: pmcp is built as the tests are.
const raceDetector = false

// shrink divides nothing.
const shrink = 1
