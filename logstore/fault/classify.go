package fault

import (
	"strings"
	"sync"
)

// categorySigns lists, for each category, the lower-case words in a fault's type and message that
// indicate it. The first group that matches wins; groups are ordered from certain to vague.
var categorySigns = [...]struct {
	category string
	words    []string
}{
	{CategoryOutOfMemory, []string{"out of memory", "outofmemory", "heap limit", "cannot allocate memory", "memoryerror", "enomem", "oomkilled", "oom-kill", "bad_alloc", "stack overflow at", "allowed memory size"}},
	{CategoryDiskSpace, []string{"no space left", "enospc", "disk full", "disk is full", "disk quota", "edquot", "too many open files", "emfile", "enfile"}},
	{CategoryAddressInUse, []string{"eaddrinuse", "address already in use", "address in use", "port is already allocated", "port already in use", "is already in use"}},
	{CategoryPermission, []string{"eacces", "eperm", "permission denied", "permissionerror", "access denied", "access is denied", "accessdenied", "operation not permitted", "forbidden", "unauthorized"}},
	{CategoryConnection, []string{"econnrefused", "connection refused", "connectionrefused", "econnreset", "connection reset", "connectionreset", "etimedout", "timed out connecting",
		"connection timed out", "connect timeout", "connectexception", "sockettimeout", "i/o timeout", "connection closed", "connection aborted", "socket hang up", "epipe", "broken pipe", "brokenpipe", "connectionerror", "could not connect", "timed out", "deadline exceeded", "timeoutexception", "timeouterror", "connecttimeout", "cannot connect", "failed to connect"}},
	{CategoryNetwork, []string{" enotfound", "'enotfound", "eai_again", "getaddrinfo", "no such host", "could not resolve host", "name or service not known", "name resolution", "unknownhost", "fetch failed", "enetunreach", "ehostunreach",
		"network is unreachable", "no route to host", "network error", "networkerror", "certificate", "tls handshake", "ssl error", "sslerror", "bad gateway"}},
	{CategoryUnhandledRejection, []string{"unhandledpromiserejection", "unhandled promise rejection", "err_unhandled_rejection", "unhandled rejection"}},
	{CategoryAssertion, []string{"assertionerror", "assertion", "assert_", "assertionfailed", "expectation failed"}},
	{CategorySyntax, []string{"syntaxerror", "indentationerror", "taberror", "parseerror", "parsererror", "jsondecodeerror", "syntax error", "syntax:", "unexpected token", "unexpected end of", "unexpected eof", "parse error",
		"parsing error", "parse failed", "invalid syntax", "is not valid json", "unterminated string", "unexpected indent", "expected identifier but found", "unexpected \";\"", "transform failed"}},
	{CategoryNotFound, []string{"enoent", "no such file", "module_not_found", "cannot find module", "modulenotfound", "module not found", "command not found", "filenotfound", "file not found", "could not resolve", "can't resolve",
		"cannot resolve", "failed to resolve import", "no module named", "cannot find package", "no required module provides", "could not find or load main class", "classnotfound", "noclassdeffound", "importerror", "loaderror",
		"cannot load such file", "no rule to make target", "missing script", "unresolved import", "cannot find the path", ": not found", "couldn't find", "could not find a version", "no matching distribution", "could not be resolved", "can't locate ", "failed opening", "err_module_not_found"}},
	{CategoryType, []string{"typeerror", "keyerror:", "indexerror:", "valueerror:", "nameerror:", "referenceerror:", "classcastexception", "attributeerror", "nullpointerexception", "nomethoderror", "invalidcast", "nullreferenceexception", "is not a function", "cannot read propert",
		"incompatible type", "incompatible types", "mismatched types", "cannot convert", "cannot implicitly convert", "type mismatch", "invalid conversion", "cannot use "}},
}

// classify returns the category of a fault. A failed test counts as a failed assertion unless the
// fault indicates a problem with the environment.
func classify(kind, message, hint string, test bool, fallback string) string {
	text := lowerASCII(kind + ": " + cut(message, 1024) + "\n" + cut(hint, 512))
	found := signs().groups(text, test)
	for i, s := range categorySigns {
		if found>>i&1 == 0 || test && (s.category == CategoryType || s.category == CategorySyntax && (strings.Contains(text, "expect(") || strings.Contains(text, " expected"))) {
			continue
		}
		return s.category
	}
	if fallback == "" {
		return CategoryOther
	}
	return fallback
}

// signs finds the words of categorySigns in one pass over a text.
var signs = sync.OnceValue(newSignIndex)

// A signIndex maps the first three bytes of a word to the index of the list of words that start with
// them; list 0 is empty.
type signIndex struct {
	grams [1 << gramBits]uint8
	lists [][]sign
}

// sign is a word of a group of categorySigns.
type sign struct {
	word  string
	group int
}

func newSignIndex() *signIndex {
	x := &signIndex{lists: make([][]sign, 1)}
	for group, s := range categorySigns {
		for _, word := range s.words {
			list := &x.grams[gramAt(word, 0)]
			if *list == 0 {
				*list = uint8(len(x.lists))
				x.lists = append(x.lists, nil)
			}
			x.lists[*list] = append(x.lists[*list], sign{word, group})
		}
	}
	return x
}

func gramAt(s string, i int) uint32 {
	return gramIndex(uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16)
}

// groups returns the set of the groups of which text contains a word. Failed tests time out for any
// reason.
func (x *signIndex) groups(text string, test bool) (found uint) {
	for i := 0; i+2 < len(text); i++ {
		for _, s := range x.lists[x.grams[gramAt(text, i)]] {
			if strings.HasPrefix(text[i:], s.word) && !(test && s.word == "timed out") {
				found |= 1 << s.group
			}
		}
	}
	return found
}
