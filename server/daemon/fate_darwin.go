package daemon

// controlGroup returns "": macOS has no control groups.
func controlGroup() string { return "" }

// inContainer returns false: macOS has no pid namespaces.
func inContainer() bool { return false }
