//go:build race

package e2e

// raceDetector: pmcp is built as the tests are.
const raceDetector = true

// shrink divides amounts of which each piece costs many times as much with the
// race detector: the whole is for the run without it.
const shrink = 5
