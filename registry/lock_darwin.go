package registry

import (
	"errors"
	"os"
)

// openNameless always fails: macOS has no files without names.
func openNameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// nameFile is never called.
func nameFile(*os.File, string) error { return errors.ErrUnsupported }
