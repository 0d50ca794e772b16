package project

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
)

// withoutSecrets returns the part of a that may be stored: variables that look
// secret, by name or by value, are left out of Env, and SecretEnv lists their
// names.
func (a Definition) withoutSecrets(project string, masker *mask.Masker) Definition {
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

// SpareNames exempts the names of the project's existing processes and groups from
// masking.
func (p *Project) SpareNames(ctx context.Context) {
	names, err := p.Names(ctx)
	groups, groupsErr := p.o.Store.Groups(ctx, p.name)
	if err = errors.Join(err, groupsErr); err != nil && ctx.Err() == nil {
		p.o.Log.Warn("names that are part of a secret will be masked", "error", err)
	}
	p.o.Mask.Exempt(slices.AppendSeq(names, maps.Keys(groups))...)
}

// fillSecrets fills in the values of a that could not be stored. It takes them from
// own, an earlier definition of the same process.
func (a *Definition) fillSecrets(own Definition, project string, masker *mask.Masker) {
	own = own.clone()
	own.liftSecretAssignments(project, masker)
	for _, key := range a.SecretEnv {
		if value := own.Env[key]; value != nil {
			a.addEnv(map[string]string{key: *value})
		}
	}
}

func isSecretVariable(key string, value *string, masker *mask.Masker) bool {
	return mask.SecretName(key) || value != nil && masker.Text(*value) != *value
}

// masked returns a as JSON. In arguments other than the variables it masks secrets,
// and Masked lists these arguments.
func (a Definition) masked(masker *mask.Masker) (json.RawMessage, error) {
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

// requireUnmasked returns an error if arguments of the definition are masked: such
// a definition is incomplete and cannot be started.
func (a Definition) requireUnmasked() error {
	if len(a.Masked) == 0 {
		return nil
	}
	return fmt.Errorf("argument %s needed; secrets in the stored definition are masked. Give it again; a secret in env can come from env_files or pmcp's own environment instead", strings.Join(a.Masked, ", "))
}

// liftSecretAssignments moves the leading NAME=value words of a command line to Env
// if one of the words looks secret: the command line is stored, and the secret
// would be stored with it. A variable that Env already has keeps its value from
// Env, as it does when the line is run.
func (a *Definition) liftSecretAssignments(project string, masker *mask.Masker) {
	if len(a.Args) > 0 {
		return
	}
	assigned, argv, err := a.source(project).Split()
	secret := false
	for key, value := range assigned {
		secret = secret || isSecretVariable(key, &value, masker)
	}
	if err != nil || !secret {
		return
	}
	a.addEnv(assigned)
	for i, word := range argv {
		argv[i] = shellQuote(word)
	}
	a.Command = strings.Join(argv, " ")
}

// plainWord matches a word that needs no quotes in a command line.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// IsPlainWord reports whether s needs no quotes in a command line.
func IsPlainWord(s string) bool { return plainWord.MatchString(s) }

// shellQuote returns word in the form that command.Split reads, quoted if
// necessary.
func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// requireSecrets returns an error if a value that could not be stored is neither in
// env nor in pmcp's own environment. env holds the variables of the call and of its
// dotenv files.
func (a Definition) requireSecrets(env map[string]string) error {
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
	return fmt.Errorf("argument env: %s needed; values that look secret are not stored. Give them in env, in env_files, or in pmcp's own environment", strings.Join(missing, ", "))
}
