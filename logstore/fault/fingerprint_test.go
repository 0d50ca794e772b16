package fault_test

import (
	"testing"

	"pmcp/logstore/fault"
)

// onlyFault returns the fault in the lines, which must contain exactly one.
func onlyFault(t *testing.T, lines ...string) fault.Fault {
	t.Helper()
	var got []fault.Fault
	rec := fault.New(func(f fault.Fault) { got = append(got, f) })
	for i, s := range lines {
		rec.Line(int64(i+1), 1, 5, []byte(s))
	}
	rec.End(0, "")
	if len(got) != 1 {
		t.Fatalf("got %d faults in %q, want 1: %+v", len(got), lines, got)
	}
	return got[0]
}

// TestFingerprintIgnoresWhatVaries checks that an error has the same fingerprint if it occurs again
// at another time, with other numbers, ids and temporary paths.
func TestFingerprintIgnoresWhatVaries(t *testing.T) {
	for _, c := range [][2][]string{
		{{"Error: job 1042 failed for user u-6a6bac37fe68", "    at work (/home/dev/app.js:2:27)"}, {"Error: job 7 failed for user u-f0127ab3b8ca", "    at work (/home/dev/app.js:14:9)"}},
		{{"ERROR: no customer 6699a363"}, {"ERROR: no customer 29952412"}},
		{{"ERROR: no customer 6699a363"}, {"ERROR: no customer deadbeef"}},
		{{"ERROR: request 550e8400-e29b-41d4-a716-446655440000 took 1.25s"}, {"ERROR: request 6ba7b810-9dad-11d1-80b4-00c04fd430c8 took 12s"}},
		{{"ERROR: request 550e8400-e29b-41d4-a716-446655440000 lost"}, {"ERROR: request ffffabcd-abcd-abcd-abcd-abcdefabcdef lost"}},
		{{"2026-01-05 10:00:00,123 ERROR shop: stock of item 17 is negative"}, {"2026-11-20 23:59:59,999 ERROR shop: stock of item 4711 is negative"}},
		{{"ERROR: last seen at 2026-01-05T10:00:00.123Z"}, {"ERROR: last seen at 2026-11-20T23:59:59+01:00"}},
		{{"ERROR: expires Mon, 05 Jan 2026 10:00:00 GMT"}, {"ERROR: expires Tue, 15 Dec 2026 11:12:13 GMT"}},
		{{"ERROR: cannot free 0x55d3156a41bf"}, {"ERROR: cannot free 0x7f00deadbeef"}},
		{{"ERROR: cannot read /tmp/build-8Xk2/out.json"}, {"ERROR: cannot read /tmp/build-Qq91/out.json"}},
		{{"ERROR: cannot read /tmp/tmpabcxyz"}, {"ERROR: cannot read /tmp/tmpv_gzqk3a"}},
		{{"ERROR: cannot read /var/folders/zz/abc123/T/x.sock"}, {"ERROR: cannot read /var/folders/yy/def456/T/x.sock"}},
		{{"ERROR: peer 10.0.0.7:51234 went away"}, {"ERROR: peer 192.168.178.20:80 went away"}},
		{{"ERROR: session V1StGXR8_Z5jdHi6B-myT is unknown"}, {"ERROR: session Uakgb_J5m9g-0JDMbcJqL is unknown"}},
		{{"panic: runtime error: index out of range [5] with length 3", "", "goroutine 9 [running]:", "main.worker(...)", "\t/home/dev/main.go:9"},
			{"panic: runtime error: index out of range [17] with length 4", "", "goroutine 1234 [running]:", "main.worker(...)", "\t/home/dev/main.go:12"}},
		{{"==22956==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000014 at pc 0x55d3156a41c0", "    #0 0x55d3156a41bf in read_item /home/dev/main.c:2", "==22956==ABORTING"},
			{"==99==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000999 at pc 0x55d3156a4fff", "    #0 0x55d3156a4fff in read_item /home/dev/main.c:5", "==99==ABORTING"}},
		{{"src/app.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'."}, {"src/app.ts(30,9): error TS2322: Type 'string' is not assignable to type 'number'."}},
		{{`{"level":50,"msg":"order 17 failed","reqId":"a1b2c3"}`}, {`{"level":50,"msg":"order 99 failed","reqId":"ffff00"}`}},
	} {
		a, b := onlyFault(t, c[0]...), onlyFault(t, c[1]...)
		if a.Fingerprint != b.Fingerprint {
			t.Errorf("got different fingerprints for %q and %q (%s %s), want the same", a.Message, b.Message, a.File, b.File)
		}
	}
}

// TestFingerprintKeepsWhatMatters checks that different errors have different fingerprints.
func TestFingerprintKeepsWhatMatters(t *testing.T) {
	seen := map[string]string{}
	for _, line := range []string{
		"src/app.ts(3,5): error TS2322: Type 'int32' is not assignable.", "src/app.ts(3,5): error TS2322: Type 'int64' is not assignable.", "src/app.ts(3,5): error TS2345: Type 'int64' is not assignable.",
		"src/other.ts(3,5): error TS2345: Type 'int64' is not assignable.", "ERROR: upstream answered with status 404", "ERROR: upstream answered with status 500", "ERROR: worker ended with exit code 1", "ERROR: worker ended with exit code 3",
		"ERROR: cannot read /tmp/a1/out.json", "ERROR: cannot read /tmp/a1/in.json", "error[E0308]: mismatched types", "error[E0425]: mismatched types", "ERROR: sha256 does not fit", "ERROR: sha512 does not fit",
	} {
		f := onlyFault(t, line)
		if other, ok := seen[f.Fingerprint]; ok {
			t.Errorf("got the same fingerprint for %q and %q, want different ones", line, other)
		}
		seen[f.Fingerprint] = line
	}
}

// TestFingerprintsOfCorpusDiffer checks that two different errors in the recorded output never
// share a fingerprint, and that a repeated error keeps its own.
func TestFingerprintsOfCorpusDiffer(t *testing.T) {
	type owner struct{ name, what string }
	owners := map[string]owner{}
	for _, r := range recordings(t, "corpus") {
		want := r.expected(t, "corpus")
		for i, f := range r.faults() {
			what := f.Type + " | " + f.Message + " | " + f.File
			o, ok := owners[f.Fingerprint]
			if ok && o.what != what && !(o.name == r.name && i < len(want) && want[i].Repeats) {
				t.Errorf("got the same fingerprint for %s (%s) and %s (%s), want different ones", r.name, what, o.name, o.what)
			}
			if !ok {
				owners[f.Fingerprint] = owner{r.name, what}
			}
		}
		again := r.faults()
		for i, f := range r.faults() {
			if f.Fingerprint != again[i].Fingerprint {
				t.Errorf("%s: got fingerprint %s, then %s, want the same", r.name, f.Fingerprint, again[i].Fingerprint)
			}
		}
	}
}

// TestFingerprintHasFixedValue checks that the fingerprint of one error has a fixed value. If the
// value changes, stored errors no longer match new ones, and fingerprintVersion must change too.
func TestFingerprintHasFixedValue(t *testing.T) {
	f := onlyFault(t, "TypeError: x is not a function", "    at run (/home/dev/app.js:3:9)")
	if want := "1dc4bb25bd0e41fc2ca53864ba1353b8"; f.Fingerprint != want {
		t.Errorf("got %s, want %s", f.Fingerprint, want)
	}
}
