package fault

// The categories of faults.
const (
	CategoryOutOfMemory        = "out_of_memory"       // memory was exhausted, or the system killed the program for it
	CategoryPermission         = "permission"          // access was denied
	CategoryNotFound           = "not_found"           // a file, module, command, host object or symbol does not exist
	CategoryConnection         = "connection"          // a connection was refused, reset or timed out
	CategoryAddressInUse       = "address_in_use"      // somebody else listens on the port
	CategorySyntax             = "syntax"              // source or data could not be parsed
	CategoryType               = "type"                // a value or an expression of the wrong type
	CategoryNetwork            = "network"             // names, routes, TLS, HTTP: the network, but not the connection
	CategoryDiskSpace          = "disk_space"          // no space left, or a quota or the number of open files is exhausted
	CategoryAssertion          = "assertion"           // a test or an assertion failed
	CategoryBuild              = "build"               // a compiler, linter, bundler or build tool refused
	CategoryCrash              = "crash"               // a panic, a signal, a memory error, or an end with a bad exit code
	CategoryUnhandledRejection = "unhandled_rejection" // a promise was rejected and nobody handled it
	CategoryOther              = "other"               // an error of another kind
)

// Categories lists all categories, in the order of the constants.
func Categories() []string {
	return []string{
		CategoryOutOfMemory, CategoryPermission, CategoryNotFound, CategoryConnection, CategoryAddressInUse, CategorySyntax,
		CategoryType, CategoryNetwork, CategoryDiskSpace, CategoryAssertion, CategoryBuild, CategoryCrash,
		CategoryUnhandledRejection, CategoryOther,
	}
}
