package fault

// The fault categories.
const (
	CategoryOutOfMemory        = "out_of_memory"       // memory was exhausted, or the system killed the program to free memory
	CategoryPermission         = "permission"          // access was denied
	CategoryNotFound           = "not_found"           // a file, module, command or symbol does not exist
	CategoryConnection         = "connection"          // a connection was refused, reset or timed out
	CategoryAddressInUse       = "address_in_use"      // another process is listening on the port
	CategorySyntax             = "syntax"              // source or data could not be parsed
	CategoryType               = "type"                // a value, a name or an expression that the code may not use there: of the wrong type, out of range, undefined
	CategoryNetwork            = "network"             // DNS, routing, TLS or HTTP trouble, but not the connection itself
	CategoryDiskSpace          = "disk_space"          // no space left, or a quota or the number of open files is exhausted
	CategoryAssertion          = "assertion"           // a test or an assertion failed
	CategoryBuild              = "build"               // a compiler, linter, bundler or build tool failed
	CategoryCrash              = "crash"               // a panic, a signal, a memory error, or a bad exit code
	CategoryUnhandledRejection = "unhandled_rejection" // a promise was rejected and not handled
	CategoryOther              = "other"               // any other error
)

// Categories returns all categories, in the order of the constants.
func Categories() []string {
	return []string{
		CategoryOutOfMemory, CategoryPermission, CategoryNotFound, CategoryConnection, CategoryAddressInUse, CategorySyntax,
		CategoryType, CategoryNetwork, CategoryDiskSpace, CategoryAssertion, CategoryBuild, CategoryCrash,
		CategoryUnhandledRejection, CategoryOther,
	}
}
