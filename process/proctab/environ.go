package proctab

import "bytes"

// Getenv returns the value of key in the environment that the process was
// started with. It is false if the key is not there or the process is another
// user's or gone.
func Getenv(pid int, key string) (string, bool) { return lookup(environ(pid), key) }

// Getenvs is Getenv for several keys, "" for one that is not there. known is
// false as long as there is nothing to find them in: a process that is between
// two programs (execve) has no environment, like one that was started without,
// another user's, or one that is gone.
func Getenvs(pid int, keys ...string) (values []string, known bool) {
	env := environ(pid)
	values = make([]string, len(keys))
	for i, key := range keys {
		values[i], _ = lookup(env, key)
	}
	return values, len(env) > 0
}

// lookup finds key in entries that each end with NUL.
func lookup(env []byte, key string) (string, bool) {
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(key+"=")); ok {
			return string(value), true
		}
	}
	return "", false
}
