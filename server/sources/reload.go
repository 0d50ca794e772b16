package sources

import (
	"path"
	"slices"
	"strings"
)

// maxHead is how many words of a command line say what it is.
const maxHead = 4

// A command is a command line in a form that patterns match.
type command struct {
	words []string // as they are
	head  []string // the first that are no options, without directories, and without extensions if they are of packages
	text  string   // head, joined
	all   string   // words, joined
}

// ofPackage finds the package that a path belongs to whose last element says nothing: …/node_modules/tsx/dist/cli.mjs.
var ofPackage = newPattern(`.*/node_modules/(?:@[^/]+/)?([^/]+)/.*(?:^|/)(?:cli|bin|index|main|start|run)\.[cm]?js$`)

func newCommand(line string) command {
	c := command{words: strings.Fields(line)}
	for _, word := range c.words {
		if len(c.head) == maxHead {
			break
		}
		if strings.HasPrefix(word, "-") {
			continue
		}
		name := path.Base(word)
		if m := ofPackage().FindStringSubmatch(word); m != nil {
			name = m[1]
		}
		if strings.Contains(word, "/node_modules/") {
			name = strings.TrimSuffix(name, path.Ext(name))
		}
		c.head = append(c.head, name)
	}
	c.text, c.all = strings.Join(c.head, " "), " "+strings.Join(c.words, " ")+" "
	return c
}

const (
	// watchers are programs that start or load again what has changed, whatever their arguments are.
	watchers = `nodemon|node-dev|ts-node-dev|tsnd|vinxi|browser-sync|live-server|webpack-dev-server|web-dev-server|wds|start-storybook|metro|air|gow|reflex|CompileDaemon|modd|realize|fresh|wgo|` +
		`bacon|watchexec|cargo-watch|entr|fswatch|inotifywait|inotifywatch|watchman-make|chokidar|onchange|guard|rerun|shotgun|hupper|watchmedo|watchfiles|jurigged|ptw|pytest-watch|streamlit|ibazel|` +
		`elm-live|tilt|skaffold|morbo|sphinx-autobuild|http-server|http\.server|php-fpm[\d.]*|php-cgi[\d.]*|flutter|bokeh|marimo|jupyter\S*|ipykernel_launcher`
	// frontends are programs that do so while they serve, and subcommands by which they do, or serve what was built.
	frontends = `vite|next|nuxt|nuxi|astro|remix|remix-serve|react-router|svelte-kit|gatsby|ng|nx|vue-cli-service|react-scripts|craco|webpack|rspack|rsbuild|umi|max|quasar|ionic|ember|gridsome|docusaurus|` +
		`vitepress|vuepress|eleventy|hexo|jekyll|hugo|mkdocs|zola|mdbook|trunk|dx|wrangler|netlify|vercel|storybook|parcel|stencil|expo|react-native|esbuild|farm|umi|redwood|rw|blitz|waku|solid-start|vike`
)

// reloads matches the head of a command that reads its files again by itself.
var reloads = newPattern(`^(\S+ )?(` + watchers + `)( |$)|` +
	`(^| )(` + frontends + `)( \S+)? (dev|develop|serve|server|start|watch|preview|s|vite:dev)( |$)|(^| )vite($| [^a-z])|` +
	`^serve( |$)|^node serve( |$)|(^| )watch( |$)|(^| )runserver(_plus)?( |$)|(^| )rails (s|server|dev)( |$)|(^| )phx\.server( |$)|(^| )artisan serve( |$)|` +
	`(^| )(quarkus:dev|quarkusDev|appengine:run|jetty:run)( |$)|(^| )sbt (run|~\S*)( |$)|(^| )(fastapi|litestar|strapi|medusa|sst|convex|turbo|wails|tauri|encore|buffalo|dagster|reflex|panel|sanic) (dev|develop)( |$)|` +
	`(^| )(encore|reflex|bee) run( |$)|^lein (ring|figwheel)|(^| )shadow-cljs `)

// reloadOptions matches a whole command line with an option that makes its program do so.
var reloadOptions = newPattern(`(?i) --?(\S+[.:-])?(watch|reload|auto-?reload|live-?reload|hot|hmr|respawn|continuous|autorestart)([-=:]\S*)? |` +
	` (flask|quart|gradio|panel)\b.* --(debug|dev) | sanic\b.* (--dev|-d|-r) | (tsc|webpack|rollup|postcss|sass|babel|swc|mill|scala-cli|rspack|tailwindcss|parcel)(\.[cm]?js)? (\S+ )*-w | gradle(w|-wrapper\.jar)? (\S+ )*-t | php[\d.]* (\S+ )*-S | plackup\b.* -(r|R|L) `)

// noReload matches an option by which a program that reloads does not.
var noReload = newPattern(` --(no-?reload|no-watch|watch=false|reload=false) `)

// reloadsByItself reports whether the command reads its files again when they change, or whenever it is asked.
func (c *command) reloadsByItself() bool {
	return !c.isRunner() && !c.builds() && !noReload().MatchString(c.all) && (reloads().MatchString(c.text) || reloadOptions().MatchString(strings.ReplaceAll(c.all, "/", " ")))
}

// runners start other programs, which are in the tree of the run.
var runners = strings.Fields(`sh bash dash zsh fish ksh busybox env sudo nice timeout time nohup xvfb-run npm npx npm-cli npx-cli pnpm pnpm.cjs pnpx yarn yarn.js bunx corepack make just task rake poetry uv uvx pipenv pdm hatch rye conda bundle foreman honcho overmind supervisord concurrently dotenv direnv tini dumb-init`)

func (c *command) isRunner() bool {
	name := c.head
	if len(name) > 1 && name[0] == "node" {
		name = name[1:]
	}
	return len(name) > 0 && slices.Contains(runners, name[0])
}

// builds reports whether the command builds a program, to which its other words belong.
func (c *command) builds() bool {
	return len(c.head) > 1 && (c.head[0] == "go" || c.head[0] == "cargo") && c.head[1] == "run"
}

// languageOf returns that of the first name of a program of one, or nil.
func languageOf(names []string) *language {
	for _, name := range names {
		for _, l := range languages {
			if l.programs().MatchString(name) {
				return l
			}
		}
	}
	return nil
}

// reloaded matches lines by which a program says that it loads again what has changed, or will.
var reloaded = newPattern(`(?i)^restarting '|\b(auto|hot|live)?[- ]?reload(s|ed|er|ing)?\b|\bhmr\b|hot module|\bfast refresh\b|restarting (due|because|with|server|process|app|after|on)\b|restarted (due|because|after)\b|` +
	`\b(file|files|source|sources) changed?\b|\bchanges? (was |were )?(detected|found)\b|\bdetected (a )?(file )?changes?\b|\bwatching (for|path|paths|dir|director|extension|files|src|\S+[/.]|\d)|\bwatch(ing)? mode\b|` +
	`^\W*(\[[^\]]*\] *)*(re-?build|re-?compil)|\b(compiled (successfully|in|client|server)|re-?starting \S+ (due|because)|re-?spawning)\b|server restarted|\.\w+ has been modified|waiting for (file )?changes|restartedMain|StatReload|WatchFiles|debug(ger)? (mode: on|is active)|livereload|LiveReload`)

// SaysReload reports whether a line of output says that its program loads again what has changed.
func SaysReload(line string) bool { return reloaded().MatchString(line) }
