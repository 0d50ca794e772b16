package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A unit defines how the figures of a benchmark are printed.
type unit struct {
	suffix string
	scale  float64 // to nanoseconds, where suffix is "ns"
	more   bool    // more is better
}

var units = map[string]unit{
	"ns/op":             {"ns", 1, false},
	"p50-µs":            {"ns", 1e3, false},
	"p99-µs":            {"ns", 1e3, false},
	"bare-p50-µs":       {"ns", 1e3, false},
	"beyond-p50-µs":     {"ns", 1e3, false},
	"start-p50-µs":      {"ns", 1e3, false},
	"bare-start-p50-µs": {"ns", 1e3, false},
	"stop-p50-µs":       {"ns", 1e3, false},
	"bare-stop-p50-µs":  {"ns", 1e3, false},
	"list-p50-µs":       {"ns", 1e3, false},
	"tail-p50-µs":       {"ns", 1e3, false},
	"ms-p50":            {"ns", 1e6, false},
	"end-ms":            {"ns", 1e6, false},
	"longest-CPU-ms":    {"ns", 1e6, false},
	"bare-end-ms":       {"ns", 1e6, false},
	"cpu-ns/line":       {"ns", 1, false},
	"lines/s":           {" lines/s", 1, true},
	"alone-lines/s":     {" lines/s", 1, true},
	"B/line":            {" B", 1, false},
	"disk/text":         {" × its text", 1, false},
	"lines":             {" lines", 1, true},
	"PSS-MiB":           {" MiB", 1, false},
	"bare-PSS-MiB":      {" MiB", 1, false},
	"peak-MiB":          {" MiB", 1, false},
	"idle-PSS-MiB":      {" MiB", 1, false},
	"wakeups/s":         {" a second", 1, false},
	"idle-wakeups/s":    {" a second", 1, false},
	"idle-CPU-%":        {" %", 1, false},
	"bare-idle-CPU-%":   {" %", 1, false},
	"page-CPU-%":        {" %", 1, false},
	"bare-CPU-%":        {" %", 1, false},
}

// show returns a value with its unit, to three digits.
func (u unit) show(value float64) string {
	value *= u.scale
	if u.suffix != "ns" {
		switch {
		case value >= 1e6:
			return digits(value/1e6) + "M" + u.suffix
		case value >= 1e3:
			return digits(value/1e3) + "k" + u.suffix
		}
		return digits(value) + u.suffix
	}
	for _, step := range []struct {
		suffix string
		ns     float64
	}{{" s", 1e9}, {" ms", 1e6}, {" µs", 1e3}} {
		if value >= step.ns {
			return digits(value/step.ns) + step.suffix
		}
	}
	return digits(value) + " ns"
}

// digits returns a number to three digits, a whole one without a point.
func digits(value float64) string {
	switch {
	case value >= 100, value == math.Trunc(value):
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	default:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
}

// better returns the factor by which pmcp is better than the baseline; below 1 it is
// worse.
func (u unit) better(pmcp, base float64) float64 {
	if u.more {
		return pmcp / base
	}
	return base / pmcp
}

// ratio returns the factor in words.
func (u unit) ratio(better float64) string {
	good, bad := "faster", "slower"
	if !u.more && u.suffix != "ns" {
		good, bad = "less", "more"
	}
	if better >= 1 {
		return digits(better) + "× " + good
	}
	return digits(1/better) + "× " + bad
}

// markdown returns the table with the measured figures. It fails if one is missing, except where
// there is no browser.
func markdown(rows []row, measured map[figure]float64) (string, error) {
	var b strings.Builder
	b.WriteString("| what | pmcp | baseline | ratio | target |\n|---|---:|---:|---:|---:|\n")
	var missing []string
	for _, r := range rows {
		if _, ok := measured[r.pmcp]; r.pmcp.name == browsers && !ok {
			continue
		}
		for _, f := range r.figures() {
			if _, ok := measured[f]; !ok {
				missing = append(missing, f.String())
			}
		}
		pmcp, base := measured[r.pmcp], measured[r.base]
		u := units[r.pmcp.unit]
		baseline, ratio, better := "", "", 0.0
		if r.base.name != "" {
			baseline = fmt.Sprintf("%s (%s)", units[r.base.unit].show(base), r.baseline)
			if base > 0 && pmcp > 0 {
				better = u.better(pmcp, base*units[r.base.unit].scale/u.scale)
				ratio = u.ratio(better)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.what, u.show(pmcp), baseline, ratio, r.target.show(u, pmcp, better))
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("not measured: %s", strings.Join(missing, "; "))
	}
	return b.String(), nil
}

// show returns the target as text, with a mark if the figure misses it.
func (t target) show(u unit, pmcp, better float64) string {
	text, met := "", true
	switch {
	case t.atMost > 0:
		text, met = "≤ "+u.show(t.atMost), pmcp <= t.atMost
	case t.factor > 0 && u.more && t.factor < 1:
		text, met = fmt.Sprintf("≥ %.0f %% of it", 100*t.factor), better >= t.factor
	case t.factor >= 1:
		text, met = "≥ "+digits(t.factor)+"× "+strings.Fields(u.ratio(1))[1], better >= t.factor
	case t.factor > 0:
		text, met = "≤ "+digits(1/t.factor)+"× slower", better >= t.factor
	}
	if !met {
		text += " **missed**"
	}
	return text
}
