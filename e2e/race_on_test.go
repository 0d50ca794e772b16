//go:build race

package e2e

// raceDetector reports whether the tests, and so pmcp, are built with the race detector.
const raceDetector = true

// shrink divides amounts whose units cost many times as much with the race detector.
const shrink = 5

// slow multiplies every wait: a program with the race detector takes several times as long.
const slow = 4
