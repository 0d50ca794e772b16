package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is how the figures of a benchmark are printed.
type unit struct {
	suffix string
	scale  float64 // to nanoseconds, where suffix is "ns"
	more   bool    // more is better
}

var units = map[string]unit{
	"ns/op":           {"ns", 1, false},
	"p50-µs":          {"ns", 1e3, false},
	"ms-p50":          {"ns", 1e6, false},
	"end-ms":          {"ns", 1e6, false},
	"bare-end-ms":     {"ns", 1e6, false},
	"cpu-ns/line":     {"ns", 1, false},
	"lines/s":         {" lines/s", 1, true},
	"alone-lines/s":   {" lines/s", 1, true},
	"B/line":          {" B", 1, false},
	"PSS-MiB":         {" MiB", 1, false},
	"bare-PSS-MiB":    {" MiB", 1, false},
	"peak-MiB":        {" MiB", 1, false},
	"idle-CPU-%":      {" %", 1, false},
	"bare-idle-CPU-%": {" %", 1, false},
}

// show prints a value with its unit, to three digits.
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

// digits prints a number to three digits, a whole one without a point.
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

// better is how often pmcp is better than the baseline: below 1 it is worse.
func (u unit) better(pmcp, base float64) float64 {
	if u.more {
		return pmcp / base
	}
	return base / pmcp
}

// ratio says it in words.
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

// markdown is the table with what was measured. Every figure must be there.
func markdown(rows []row, measured map[figure]float64) (string, error) {
	var b strings.Builder
	b.WriteString("| what | pmcp | baseline | ratio | wished |\n|---|---:|---:|---:|---:|\n")
	var missing []string
	for _, r := range rows {
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
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.what, u.show(pmcp), baseline, ratio, r.wish.show(u, pmcp, better))
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("not measured: %s", strings.Join(missing, "; "))
	}
	return b.String(), nil
}

// show prints the wish and marks what does not meet it.
func (w wish) show(u unit, pmcp, better float64) string {
	text, met := "", true
	switch {
	case w.atMost > 0:
		text, met = "≤ "+u.show(w.atMost), pmcp <= w.atMost
	case w.factor > 0 && u.more && w.factor < 1:
		text, met = fmt.Sprintf("≥ %.0f %% of it", 100*w.factor), better >= w.factor
	case w.factor >= 1:
		text, met = "≥ "+digits(w.factor)+"× "+strings.Fields(u.ratio(1))[1], better >= w.factor
	case w.factor > 0:
		text, met = "≤ "+digits(1/w.factor)+"× slower", better >= w.factor
	}
	if !met {
		text += " **not met**"
	}
	return text
}
