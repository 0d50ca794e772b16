package server

// budget is the most that the lines of an answer take.
func (v logView) budget() int {
	if v.maxBytes > 0 {
		return v.maxBytes
	}
	return defaultMaxBytes
}

// fit keeps as many lines as maxBytes allows, at least one, and says on which
// side some were dropped.
func (v logView) fit(shown []shownLine) (kept []shownLine, cutFront, cutEnd bool) {
	budget, used := v.budget(), 0
	if v.newest {
		for i := len(shown) - 1; i >= 0; i-- {
			used += len(shown[i].text) + 1
			head := 0
			if h := missingHead(shown[i:]); h != "" {
				head = len(h) + 1
			}
			if used+head > budget && lastLine(shown[i+1:]) >= 0 {
				return withHead(shown[i+1:]), true, false
			}
		}
		return shown, false, false
	}
	for i := range shown {
		used += len(shown[i].text) + 1
		if used > budget && lastLine(shown[:i]) >= 0 {
			return shown[:i], false, true
		}
	}
	return shown, false, false
}

// missingHead is the separator of the first real line of shown; "" if one stands
// before it.
func missingHead(shown []shownLine) string {
	for _, l := range shown {
		if l.head != "" {
			if l.first < 0 {
				return ""
			}
			return l.head
		}
	}
	return ""
}

// withHead is shown with a separator before its first real line.
func withHead(shown []shownLine) []shownLine {
	head := missingHead(shown)
	if head == "" {
		return shown
	}
	return append([]shownLine{{head, -1, -1, head}}, shown...)
}

// firstLine and lastLine are the indexes into Page.Lines of the first and last
// real line of shown; -1 without one.
func firstLine(shown []shownLine) int {
	for _, l := range shown {
		if l.first >= 0 {
			return l.first
		}
	}
	return -1
}

func lastLine(shown []shownLine) int {
	for i := len(shown) - 1; i >= 0; i-- {
		if shown[i].last >= 0 {
			return shown[i].last
		}
	}
	return -1
}
