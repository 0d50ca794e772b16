//go:build !race

package e2e

// raceDetector reports whether the tests, and so pmcp, are built with the race detector.
const raceDetector = false

// shrink leaves amounts unchanged, because units are cheap without the race detector.
const shrink = 1

// slow leaves every wait unchanged.
const slow = 1
