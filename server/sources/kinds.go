package sources

import (
	"maps"
	"path"
	"regexp"
	"strings"
	"sync"
)

// A pattern is a regular expression that is compiled when it is first needed: compiled at once, those of this package took
// a tenth of every start of pmcp.
type pattern func() *regexp.Regexp

func newPattern(text string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// A language is what programs that run its code read.
type language struct {
	programs pattern // matches the name of a program
	kinds    kinds
}

// kinds are extensions and whole names of files.
type kinds map[string]bool

func newKinds(all string) kinds {
	k := make(kinds)
	for _, kind := range strings.Fields(all) {
		k[kind] = true
	}
	return k
}

func (k kinds) include(name string) bool { return k[path.Ext(name)] || k[name] }

var java = &language{newPattern(`^(javaw?|jbang|kotlinc?|scala(-cli)?|groovy|mvnw?|mvnd|gradlew?|sbt|ant)$`), newKinds(`.java .kt .kts .scala .groovy .properties`)}

// languages are the known ones. A program that is in none, but is given a file of one of their kinds, reads any of them.
var languages = []*language{
	{newPattern(`^(node(js)?|deno|bun|tsx|ts-node|nest|electron|fastify|jest|vitest|mocha)$`), newKinds(`.js .mjs .cjs .jsx .ts .mts .cts .tsx .json`)},
	{newPattern(`^(python|pypy)[\d.]*$|^(uvicorn|gunicorn|hypercorn|daphne|granian|waitress-serve|uwsgi|flask|quart|sanic|litestar|fastapi|celery|rq|dramatiq|scrapy|locust|pytest)$`), newKinds(`.py`)},
	{newPattern(`^go$`), newKinds(`.go go.mod`)},
	java,
	{newPattern(`^j?ruby[\d.]*$|^(rails|rackup|puma|unicorn|sidekiq|rake|irb|rspec)$`), newKinds(`.rb .ru .rake .erb`)},
	{newPattern(`^php[\d.]*$`), newKinds(`.php`)},
	{newPattern(`^cargo$`), newKinds(`.rs Cargo.toml`)},
	{newPattern(`^dotnet$`), newKinds(`.cs .fs .vb .csproj .fsproj .razor .cshtml`)},
	{newPattern(`^(elixir|mix|iex|beam\.smp|erl|rebar3)$`), newKinds(`.ex .exs .eex .heex .erl .hrl`)},
}

// anyLanguage is that of a program in no language.
var anyLanguage = &language{kinds: newKinds(`.pl .pm .lua .r .R .jl .dart .swift .zig .nim .cr .hs .clj .cljs .ml .rkt .scm .tcl .sh .awk`)}

func init() {
	for _, l := range languages {
		maps.Copy(anyLanguage.kinds, l.kinds)
	}
}

// compiled is what a program reads that was built, and archive matches a program that is one file.
var (
	compiled = &language{kinds: newKinds(`.js .mjs .cjs .py .rb .php .class .dll .beam`)}
	archive  = newPattern(`\.(jar|war|pyz|phar)$`)
)

// unread matches, below a directory, files of a kind that a running program does not read, or that it writes itself.
var unread = newPattern(`(^|/)(__tests__|__mocks__|__snapshots__|testdata|tests?|spec|fixtures)/|` +
	`(^|/)(test_[^/]*|conftest)\.py$|[._-](test|tests|spec|stories|snap)\.[^/]*$|\.d\.[cm]?ts$|` +
	`(^|/)(package-lock|npm-shrinkwrap)\.json$|` +
	`(?i)(^|/)[^/]*\b(db|data|database|state|store|storage|cache|sessions?|reports?|results?|logs?|stats|coverage)(/([^/]*/)*[^/]*)?\.json$`)

// unreadDirs matches directories that hold other programs, or what was built from the sources.
var unreadDirs = newPattern(`^(\..*|node_modules|bower_components|site-packages|__pycache__|vendor|target|dist|build|out|obj|coverage|Pods)$`)

// built matches what is made from the sources, below the directory of a program: a program that reads it does not read them.
var built = newPattern(`(^|/)(dist|build|out|target|obj|bin/(Debug|Release)|\.next|\.output|\.nuxt)/`)

// tool matches the path of a script that is no source of the project: of a package, a virtual environment or the machine.
var tool = newPattern(`^/(usr|bin|opt|nix|snap)/|(^|/)(\.[^/]+|node_modules|site-packages|vendor|v?env/bin)/`)

// inline matches a command whose program is an argument, and prompt an interpreter without a program.
var (
	inline = newPattern(`^ (\S*/)?((python|pypy)[\d.]* (-\w+ )*-c|(node|bun|ruby|perl)[\d.]* (-\w+ )*(-e|-p|-pe|--eval|--print)|php[\d.]* (-\w+ )*-r) `)
	// foreign matches programs that are given sources, or commands for another machine, and read no code.
	foreign = newPattern(`^(docker|docker-compose|podman|nerdctl|kubectl|ssh|vagrant|tmux|screen|n?vim?|nano|emacs|hx|micro|less|more|cat|tail|grep|rg|git|diff)$`)
	prompt  = newPattern(`^(node|deno|bun|python[\d.]*|pypy[\d.]*|ruby|php[\d.]*)$`)
)
