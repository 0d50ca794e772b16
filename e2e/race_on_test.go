//go:build race

package e2e

// raceDetector reports whether the tests, and so pmcp, are built with the race detector.
const raceDetector = true

// shrink divides amounts whose units cost many times as much with the race detector.
const shrink = 5
