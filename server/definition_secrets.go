package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"pmcp/logstore/mask"
	"pmcp/process"
)

// withoutSecrets is a with the variables that may be stored: the values of those
// that look secret, by their name or by what is in them, are left out, and their
// names noted.
func (a specArgs) withoutSecrets(project string, masker *mask.Masker) specArgs {
	a = a.clone()
	a.liftSecretAssignments(project, masker)
	for key, value := range a.Env {
		if isSecretVariable(key, value, masker) {
			delete(a.Env, key)
			a.SecretEnv = append(a.SecretEnv, key)
		}
	}
	slices.Sort(a.SecretEnv)
	a.SecretEnv = slices.Compact(a.SecretEnv)
	return a
}

// spareNames tells the masker of the names that the project has from before:
// those of processes and of groups.
func (s *Server) spareNames(ctx context.Context) {
	names, err := s.knownNames(ctx)
	groups, groupsErr := s.o.Store.Groups(ctx, s.o.Manager.Project())
	if err = errors.Join(err, groupsErr); err != nil && ctx.Err() == nil {
		s.o.Log.Warn("names that are part of a secret will be masked", "error", err)
	}
	s.o.Mask.Spare(slices.AppendSeq(names, maps.Keys(groups))...)
}

// takeSecrets fills in the values that could not be stored with a and that own,
// an earlier definition of the same process, has.
func (a *specArgs) takeSecrets(own specArgs, project string, masker *mask.Masker) {
	own = own.clone()
	own.liftSecretAssignments(project, masker)
	for _, key := range a.SecretEnv {
		if own.Env[key] == nil || a.Env[key] != nil {
			continue
		}
		if a.Env == nil {
			a.Env = make(map[string]*string)
		}
		a.Env[key] = own.Env[key]
	}
}

// isSecretVariable says whether the value of a variable must not be stored.
func isSecretVariable(key string, value *string, masker *mask.Masker) bool {
	return mask.SecretName(key) || value != nil && masker.Text(*value) != *value
}

// masked is a as JSON with the secrets in its other arguments masked, and those
// arguments noted.
func (a specArgs) masked(masker *mask.Masker) (json.RawMessage, error) {
	raw, err := json.Marshal(a)
	if err != nil || bytes.Equal(masker.JSON(raw), raw) {
		return raw, err
	}
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal(raw, &arguments); err != nil {
		return nil, err
	}
	a.Masked = nil
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if !bytes.Equal(masker.JSON(arguments[name]), arguments[name]) {
			a.Masked = append(a.Masked, name)
		}
	}
	raw, err = json.Marshal(a)
	return masker.JSON(raw), err
}

// demandMasked refuses a definition that is not whole.
func (a specArgs) demandMasked() error {
	if len(a.Masked) == 0 {
		return nil
	}
	return fmt.Errorf("argument %s needed; the definition is stored with the secrets in it masked. Give it again; a secret in env can be taken from env_files or pmcp's own environment instead", strings.Join(a.Masked, ", "))
}

// liftSecretAssignments moves the leading NAME=value words of a command line to
// Env if one of them looks secret: else the line would be stored with it. Env
// wins over the line, as when it is run.
func (a *specArgs) liftSecretAssignments(project string, masker *mask.Masker) {
	if len(a.Args) > 0 {
		return
	}
	assigned, argv, err := process.SplitCommandLine(a.Command, a.dir(project))
	secret := false
	for key, value := range assigned {
		secret = secret || isSecretVariable(key, &value, masker)
	}
	if err != nil || !secret {
		return
	}
	if a.Env == nil {
		a.Env = make(map[string]*string, len(assigned))
	}
	for key, value := range assigned {
		if a.Env[key] == nil {
			a.Env[key] = &value
		}
	}
	for i, word := range argv {
		argv[i] = quoteWord(word)
	}
	a.Command = strings.Join(argv, " ")
}

// plainWord matches what a command line takes without quotes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// quoteWord writes a word as SplitCommandLine reads it.
func quoteWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// demandSecrets checks that every value that could not be stored has come from
// somewhere: the call, a file, or pmcp's own environment.
func (a specArgs) demandSecrets(env map[string]string) error {
	var missing []string
	for _, key := range a.SecretEnv {
		if _, given := env[key]; given {
			continue
		}
		if _, inherited := os.LookupEnv(key); !inherited {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("argument env: %s needed; the definition is stored without values that look secret. Give them in env, in env_files, or in pmcp's own environment", strings.Join(missing, ", "))
}
