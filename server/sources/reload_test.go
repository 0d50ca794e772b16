package sources

import (
	"testing"
	"time"
)

// watching are command lines of programs that read their files again by themselves, as /proc shows them.
var watching = []string{
	"node /p/node_modules/.bin/nodemon server.js", "node /p/node_modules/nodemon/bin/nodemon.js server.js", "node --watch server.js", "node --watch-path=src server.js",
	"node /p/node_modules/tsx/dist/cli.mjs watch server.ts", "node /p/node_modules/.bin/tsx watch server.ts", "node /p/node_modules/.bin/ts-node-dev --respawn src/index.ts",
	"node /p/node_modules/ts-node-dev/lib/bin.js src/index.ts", "node /p/node_modules/.bin/vite", "node /p/node_modules/vite/bin/vite.js --port 3000", "node /p/node_modules/.bin/vite dev --host",
	"node /p/node_modules/.bin/vite preview", "node /p/node_modules/.bin/next dev", "node /p/node_modules/next/dist/bin/next dev --turbo", "node /p/node_modules/.bin/next start", "node /p/node_modules/.bin/nuxt dev",
	"node /p/node_modules/.bin/astro dev", "node /p/node_modules/.bin/remix vite:dev", "node /p/node_modules/.bin/react-scripts start", "node /p/node_modules/.bin/ng serve", "node /p/node_modules/.bin/webpack --watch",
	"node /p/node_modules/.bin/webpack serve --hot", "node /p/node_modules/.bin/tsc -w", "node /p/node_modules/.bin/rollup -c -w", "node /p/node_modules/.bin/nest start --watch", "node /p/node_modules/.bin/parcel serve index.html",
	"node /p/node_modules/.bin/expo start", "node /p/node_modules/.bin/storybook dev -p 6006", "node /p/node_modules/.bin/wrangler dev", "node /p/node_modules/serve/build/main.js dist", "bun --hot index.ts", "bun --watch index.ts", "deno run --watch main.ts",
	"/usr/bin/python3 -m uvicorn app:app --reload", "/usr/bin/python3 /usr/bin/uvicorn app:app --reload-dir src --reload", "python3 /v/bin/flask --debug run", "python3 /v/bin/flask --app shop run --debug", "python3 manage.py runserver 8000",
	"python3 /v/bin/fastapi dev main.py", "python3 /v/bin/gunicorn --reload app:app", "python3 /v/bin/hypercorn --reload app:app", "python3 /v/bin/streamlit run app.py", "python3 /v/bin/watchmedo auto-restart -- python3 app.py",
	"python3 -m http.server 8000", "python3 /v/bin/sanic app --dev", "cargo watch -x run", "/home/me/.cargo/bin/cargo-watch watch -x run", "bacon run", "trunk serve", "air -c .air.toml", "/home/me/go/bin/air", "gow run .", "reflex -r \\.go$ go run .",
	"watchexec -r go run .", "entr -r python3 app.py", "ruby bin/rails s", "ruby bin/rails server -p 3000", "ruby /usr/bin/rerun ruby app.rb", "jekyll serve", "hugo server", "php -S localhost:8000", "php artisan serve", "dotnet watch run", "java -jar gradle-wrapper.jar -t bootRun",
	"gradle -t bootRun", "mvn quarkus:dev", "sbt run", "mix phx.server", "mkdocs serve", "skaffold dev", "inotifywait -m src", "flutter run", "tilt up", "live-server public", "browser-sync start",
}

// plain are command lines of programs that do not.
var plain = []string{
	"node server.js", "node /p/watchtower/server.js", "node server.js --port 3000", "node dist/main.js", "node /p/node_modules/.bin/nest start", "node /p/node_modules/.bin/ts-node src/index.ts", "node serve.js",
	"python3 app.py", "python3 -m uvicorn app:app --workers 4", "gunicorn -w 4 app:app", "python3 manage.py runserver --noreload", "python3 /v/bin/fastapi run main.py", "python3 /v/bin/flask run", "python3 app.py --hotel x --watchdog-timeout=5",
	"go run .", "go run ./cmd/air --dev", "java -jar target/app.jar", "java Main.java", "ruby app.rb", "puma -w 2", "php work.php", "dotnet run", "cargo run", "mix run --no-halt", "deno run -A main.ts", "bun index.ts",
}

func TestReloadingProgramsAreKnown(t *testing.T) {
	for _, line := range watching {
		if c := newCommand(line); !c.reloadsByItself() {
			t.Errorf("%s: got that it does not reload (%s)", line, c.text)
		}
	}
	for _, line := range append(plain, "npm run dev", "node /usr/lib/node_modules/npm/bin/npm-cli.js run dev", "sh -c vite", "make watch") { // what these start is in the tree
		if c := newCommand(line); c.reloadsByItself() {
			t.Errorf("%s: got that it reloads", line)
		}
	}
}

// TestOutputShowsReload checks lines that real watchers print at their start, or after a change.
func TestOutputShowsReload(t *testing.T) {
	for _, line := range []string{
		"[nodemon] restarting due to changes...", "[nodemon] watching path(s): *.*", " * Restarting with stat", " * Restarting with watchdog (inotify)", " * Detected change in '/p/app.py', reloading", " * Debug mode: on",
		"Watching for file changes with StatReloader", "/p/app.py changed, reloading.", "WARNING:  WatchFiles detected changes in 'app.py'. Reloading...", "INFO:     Started reloader process [7] using StatReload",
		"10:01:02 [vite] hmr update /src/App.vue", "10:01:02 AM [vite] page reload index.html", "[vite] server restarted.", "Restarting 'server.js'", "[ERROR] 10:01:02 Restarting: src/index.ts has been modified",
		"10:01:02 AM - File change detected. Starting incremental compilation...", "File change detected. Reloading", "Found 0 errors. Watching for file changes.", "webpack 5.1 compiled successfully in 812 ms", "✓ Compiled in 120ms (300 modules)",
		"[HMR] connected", "Hot Module Replacement is enabled", "[rspack] rebuild in 12ms", "[Running 'cargo run']\n[Finished running. Watching for changes]", "2026-01-01 INFO 7 --- [  restartedMain] c.e.App : Started App",
		"LiveReload server is running on port 35729", "Recompiling 3 modules", "dotnet watch 🔥 Hot reload of changes succeeded.", "dotnet watch ⌚ File changed: ./Program.cs", "[cherrypy] ENGINE Restarting because /p/app.py changed.", "app.py modified; restarting server",
		"Auto-reload enabled", "[supervisor] Watching directory '/p' for changes.", "rollup: created dist/a.js in 12ms\nwaiting for changes...", "[10:01:02] Rebuilding...", "Change detected, executing build...", "--> Restarted due to changes", "Reloading server due to file changes", "Server reloaded",
	} {
		if !SaysReload(line) {
			t.Errorf("%q: got no reload", line)
		}
	}
	for _, line := range []string{
		"Listening on http://localhost:3000", "GET /api/prices 200 12 ms", "127.0.0.1 - - [28/Nov/2026 18:28:11] \"GET / HTTP/1.1\" 200 -", "connected to the database", "job 7 done, 3 files uploaded", "Restarting is not supported",
		"Serving Flask app 'shop'", "Debug mode: off", "user changed the price of 3 items", "INFO:     Application startup complete.", "compiled 3 templates", "no changes in the order", "the address has been modified", "index: rebuilding 7 parts",
	} {
		if SaysReload(line) {
			t.Errorf("%q: got a reload", line)
		}
	}
}

// TestReloadedRunIsSilent checks that nothing is said of a run that shows that it reloads, and that it is asked only once
// something has changed, about the time since then.
func TestReloadedRunIsSilent(t *testing.T) {
	d := newTree(t)
	d.git("init", "-q")
	d.write("app.py")
	since, asked := d.now(), time.Time{}
	run := Run{Programs: []Program{{"python3 app.py", d.dir, since}}, Reloads: func(at time.Time) bool { asked = at; return true }}
	Look(t.Context(), runGit, []Run{run})
	if !asked.IsZero() {
		t.Error("asked about a run of which nothing has changed")
	}
	d.write("app.py")
	if got := Look(t.Context(), runGit, []Run{run})[0]; got.Count != 0 || !got.Current || !asked.After(since) {
		t.Errorf("got %v, asked about %v; want nothing, asked about a time after %v", got, asked, since)
	}
	run.Programs = append(run.Programs, Program{"node /p/node_modules/.bin/nodemon app.js", d.dir, since})
	run.Reloads = nil
	if got := Look(t.Context(), runGit, []Run{run})[0]; got.Count != 0 || !got.Current {
		t.Errorf("with a watcher in the tree: got %v, want nothing", got)
	}
}
