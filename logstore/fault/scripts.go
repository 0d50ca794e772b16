package fault

import "strings"

// ruby is an error that ends a Ruby program: "app.rb:3:in `method': message (Type)", then the
// frames.
var ruby = stackRow(row{
	words: []string{":in `", ":in '"},
	fatal: true,
	start: func(b *block, l line) verdict {
		p, function, ok := parseRubyFrame(l.text)
		i := strings.Index(l.text, "': ")
		if !ok || i < 0 || !strings.HasSuffix(p.file, ".rb") && !strings.Contains(p.file, "<internal:") && p.file != "-e" {
			return foreign
		}
		b.stack, b.indent = stack{ruby: true, standalone: true}, 0
		message := l.text[i+len("': "):]
		if open := strings.LastIndex(message, " ("); open >= 0 && strings.HasSuffix(message, ")") { // the message itself may end in parentheses
			b.f.Type, message = message[open+2:len(message)-1], message[:open]
		}
		b.appendMessage(message)
		b.site.offer(p, function)
		return taken
	},
})

// rails is the form in which Rails logs an error that an action raised: "NoMethodError (undefined
// method `foo' for nil):". Only the frames below confirm that the line is an error.
var rails = stackRow(row{
	opens: []string{"% (%):"},
	start: func(b *block, _ line) verdict {
		kind := b.texts[0]
		if !isErrorName(kind) || strings.ContainsRune(kind, ' ') {
			return foreign
		}
		b.stack.rails = true
		b.f.Type = kind
		b.appendMessage(b.texts[1])
		return taken
	},
})

// php is a PHP error that ends the script: "PHP Fatal error:  Uncaught Type: message in file:3" or
// "Parse error: message in file on line 3".
var php = row{
	first: "PFR", fallback: CategoryOther, fatal: true,
	start: func(b *block, l line) verdict {
		kind, message, ok := strings.Cut(strings.TrimPrefix(l.text, "PHP "), ": ")
		message, p := cutPHPPosition(strings.TrimSpace(message))
		if !ok || p.file == "" || kind != "Fatal error" && kind != "Parse error" && kind != "Recoverable fatal error" {
			return foreign
		}
		b.f.Type = kind
		b.site.offer(p, "")
		if kind == "Parse error" {
			b.category = CategorySyntax
		}
		if rest, ok := strings.CutPrefix(message, "Uncaught "); ok {
			b.f.Type, message, _ = strings.Cut(rest, ": ")
		}
		b.appendMessage(message)
		return taken
	},
	next: func(b *block, l line, t string) verdict {
		p, function, isFrame := parseHashFrame(t)
		b.site.offer(p, "")
		rest, caused := strings.CutPrefix(t, "Next ")
		switch {
		case strings.HasPrefix(t, "thrown in "):
			return shownLast
		case isFrame && b.function == "":
			b.function = function
		case isFrame, t == "Stack trace:":
		case caused && l.indent() == 0: // an error that the error above caused
			message, p := cutPHPPosition(rest)
			b.site, b.f.Message, b.function = site{}, "", ""
			b.site.offer(p, "")
			b.f.Type, message, _ = strings.Cut(message, ": ")
			b.appendMessage(message)
		default:
			return foreign
		}
		return shown
	},
}

// cutPHPPosition cuts " in file:3" or " in file on line 3" off the end of a message.
func cutPHPPosition(text string) (message string, p position) {
	i := strings.LastIndex(text, " in ")
	if i < 0 {
		return text, position{}
	}
	where := text[i+len(" in "):]
	if file, n, ok := strings.Cut(where, " on line "); ok {
		p.file = file
		p.line, _, _ = parseNumber(n)
	} else if p, _, ok = parsePosition(where); !ok {
		return text, position{}
	}
	return text[:i], p
}

// tcl is an error of Tcl. Its message comes first, but only the line after the message, "while
// executing", identifies it as an error. The block's step is 1 while a quoted command continues.
var tcl = row{
	opens: []string{"while executing"}, indented: true, kind: "TclError", fallback: CategoryOther, fatal: true,
	start: func(b *block, _ line) verdict {
		if m, ok := b.above.line(0); ok && m.indent() == 0 {
			b.moveStart(m.number)
			b.appendMessage(m.text)
			b.pushStack(m.text)
		}
		return shown
	},
	next: func(b *block, _ line, t string) verdict {
		file, inFile := match(t, `(file "%" line %`)
		procedure, inProcedure := match(t, `(procedure "%"%`)
		switch {
		case inFile:
			row, _, _ := parseNumber(file[1])
			b.setPosition(position{file: file[0], line: row})
		case inProcedure && b.function == "":
			b.function = procedure[0]
		case t != "" && b.step == 1, startsWith(t, "\"", "("), t == "invoked from within":
		default:
			return foreign
		}
		if strings.HasSuffix(t, "\"") {
			b.step = 0
		} else if strings.HasPrefix(t, "\"") {
			b.step = 1
		}
		return shown
	},
}

// perl is an error that ends a Perl program: "message at file line 3." on standard error.
var perl = stackRow(row{
	words: []string{" line "},
	kind:  "die", fatal: true,
	start: func(b *block, l line) verdict {
		if l.indent() > 0 || l.stream != 1 || l.level > 0 && l.level < levelError || !strings.Contains(l.text, " line ") {
			return foreign
		}
		i := strings.LastIndex(l.text, " line ")
		at := strings.LastIndex(l.text[:max(i, 0)], " at ")
		if at < 0 {
			return foreign
		}
		row, rest, ok := parseNumber(l.text[i+len(" line "):])
		file := l.text[at+len(" at ") : i]
		if !ok || !startsWith(rest, ".", ",") || file == "" || strings.ContainsRune(file, ' ') || isPerlWarning(l.text) {
			return foreign
		}
		b.stack.standalone = true
		b.appendMessage(l.text[:at])
		b.setPosition(position{file: file, line: row})
		if strings.HasPrefix(rest, ", near ") || strings.HasPrefix(l.text, "Global symbol ") {
			b.category = CategorySyntax
		}
		return taken
	},
})

func isPerlWarning(t string) bool {
	return startsWith(t, "Use of uninitialized", "Argument \"", "Odd number of", "Useless use", "Name \"", "Subroutine ", "Deep recursion", "Scalar value", "Possible ", "Unquoted string", "Found = in", "\"my\" variable", "Wide character") ||
		containsAny(t, "is deprecated", "is experimental")
}
