package line

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A recording is what a program prints to a pipe, and when.
type recording struct {
	parts []part
	seen  map[string]bool // the lines that were on the screen at any time
	final []string        // the lines that scrolled, and those on the screen at the end
}

type part struct {
	text  string
	after time.Duration // until the next part
}

// print adds a part. shown are the lines that it completes or redraws.
func (r *recording) print(text string, after time.Duration, shown ...string) {
	r.parts = append(r.parts, part{text, after})
	for _, l := range shown {
		r.seen[l] = true
	}
}

// done adds what stays on the screen.
func (r *recording) done(text string, lines ...string) {
	r.print(text, 0, lines...)
	r.final = append(r.final, lines...)
}

// play feeds the recording as the Store does: a stream that has paused for 200 ms behind an unfinished line is flushed,
// and while something is held the Cleaner is told the time ten times a second. cut is the size of the reads, 0 for one
// read for each part.
func (r *recording) play(cut int) []string {
	var c Cleaner
	got := collected{}
	now := time.Unix(1_800_000_000, 0)
	for _, p := range r.parts {
		for text := p.text; text != ""; {
			n := len(text)
			if cut > 0 {
				n = min(n, cut)
			}
			c.Tick(now, &got)
			c.Feed([]byte(text[:n]), &got)
			text = text[n:]
		}
		for rest := p.after; rest > 0; rest -= 100 * time.Millisecond {
			now = now.Add(min(rest, 100*time.Millisecond))
			if p.after-rest == 100*time.Millisecond && !strings.HasSuffix(p.text, "\n") {
				c.Flush(&got)
			}
			if c.Held() {
				c.Tick(now, &got)
			}
		}
	}
	c.Finish(&got)
	return got
}

// recordings returns what well-known programs print, made by hand after their sources and recordings of them.
func recordings() map[string]*recording {
	all := make(map[string]*recording)
	add := func(name string) *recording {
		all[name] = &recording{seen: make(map[string]bool)}
		return all[name]
	}

	curl := add("curl")
	const head1, head2 = "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current", "                                 Dload  Upload   Total   Spent    Left  Speed"
	bar := func(i int) string {
		return fmt.Sprintf("%3d  100M  %3d %3dM    0     0  10.0M      0  0:00:10  0:00:%02d  0:00:%02d 10.0M", i*10, i*10, i*10, i, 10-i)
	}
	curl.done(head1+"\n"+head2+"\n", head1, head2)
	for i := range 10 {
		curl.print("\r"+bar(i), time.Second, bar(i))
	}
	curl.done("\r"+bar(10)+"\n", bar(10))

	pip := add("pip")
	for _, name := range []string{"torch-2.9.1-cp313-cp313-manylinux_2_28_x86_64.whl", "numpy-2.3.5-cp313-cp313-manylinux_2_27_x86_64.whl"} {
		pip.done("Downloading "+name+" (899.7 MB)\n", "Downloading "+name+" (899.7 MB)")
		for i := range 31 {
			text := fmt.Sprintf("   %s %d.0/30.0 MB 9.8 MB/s eta 0:00:%02d", strings.Repeat("━", i), i, 30-i)
			pip.print("\r\x1b[2K"+text, 250*time.Millisecond, text)
			if i == 30 {
				pip.done("\r\x1b[2K"+text+"\n", text)
			}
		}
	}
	pip.done("Successfully installed numpy-2.3.5 torch-2.9.1\n", "Successfully installed numpy-2.3.5 torch-2.9.1")

	npm := add("npm")
	for i := range 60 {
		text := fmt.Sprintf("reify:typescript: timing reifyNode:node_modules/typescript %c", "⠋⠙⠹⠸"[i%4*3:][0])
		text = strings.ToValidUTF8(text, "\uFFFD")
		npm.print("\x1b[1G\x1b[0K"+text, 80*time.Millisecond, text)
	}
	npm.done("\x1b[1G\x1b[0K\nadded 212 packages, and audited 213 packages in 5s\n\nfound 0 vulnerabilities\n", "", "added 212 packages, and audited 213 packages in 5s", "", "found 0 vulnerabilities")

	listr := add("listr")
	listr.print("\x1b[?25l", 10*time.Millisecond)
	tasks := []string{"Install the packages of the workspace", "Build the packages of the workspace", "Test the packages of the workspace"}
	for i := range 60 {
		var frame strings.Builder
		if i > 0 {
			frame.WriteString("\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[G")
		}
		var rows []string
		for at, task := range tasks {
			switch {
			case i >= 20*(at+1)-1:
				task = "✔ " + task
			case i >= 20*at:
				task = []string{"⠋ ", "⠙ ", "⠹ ", "⠸ "}[i%4] + task
			default:
				task = "◼ " + task
			}
			rows = append(rows, task)
			frame.WriteString("\x1b[36m" + task + "\x1b[39m\n")
		}
		listr.print(frame.String(), 300*time.Millisecond, rows...)
		if i == 59 {
			listr.final = rows
		}
	}
	listr.done("\x1b[?25hDone\n", "Done")

	buildkit := add("buildkit")
	for i := range 80 {
		var rows []string
		rows = append(rows, fmt.Sprintf("[+] Building %d.%ds (%d/8)", i/4, i%4*25/10, i/10))
		for at := range min(i/10+1, 8) {
			rows = append(rows, fmt.Sprintf(" => [%d/8] RUN make the target number %d of the image %20.1fs", at+1, at, float64(min(i, at*10+9)-at*10)/4))
		}
		frame := "\x1b[?25l"
		if i > 0 {
			frame += fmt.Sprintf("\x1b[%dA\x1b[0G", min((i-1)/10+1, 8)+1)
		}
		for _, row := range rows {
			frame += "\x1b[34m" + row + "\x1b[0m" + strings.Repeat(" ", 3) + "\n"
		}
		for k := range rows {
			rows[k] += "   "
		}
		buildkit.print(frame+"\x1b[?25h", 250*time.Millisecond, rows...)
		if i == 79 {
			buildkit.final = rows
		}
	}

	ffmpeg := add("ffmpeg")
	ffmpeg.done("Output #0, mp4, to 'out.mp4':\n", "Output #0, mp4, to 'out.mp4':")
	for i := range 40 {
		text := fmt.Sprintf("frame=%5d fps= 25 q=28.0 size=%8dKiB time=00:00:%02d.00 bitrate= 911.0kbits/s speed=1.9x    ", i*12, i*64, i)
		ffmpeg.print(text+"\r", 500*time.Millisecond, text)
	}
	last := "frame=  480 fps= 25 q=-1.0 Lsize=    2612KiB time=00:00:40.00 bitrate= 534.9kbits/s speed=1.9x    "
	ffmpeg.done(last+"\n", last)
	for i := range 3 {
		stat := fmt.Sprintf("[libx264 @ 0x55d1c0] frame %d:9  Avg QP:21.17  size: 22735", i)
		ffmpeg.done(stat+"\n", stat)
	}

	wget := add("wget")
	for _, l := range []string{"--2026-11-28 12:00:00--  https://example.org/big.iso", "Resolving example.org (example.org)... 203.0.113.7", "Connecting to example.org (example.org)|203.0.113.7|:443... connected.", "HTTP request sent, awaiting response... 200 OK", "Length: 419430400 (400M) [application/x-iso9660-image]", "Saving to: 'big.iso'", ""} {
		wget.done(l+"\n", l)
	}
	for i := range 20 {
		text := fmt.Sprintf("big.iso %14d%%[%-20s] %5.2fM  21.1MB/s    eta %ds", i*5, strings.Repeat("=", i)+">", float64(i)*20, 20-i)
		wget.print("\r"+text, 210*time.Millisecond, text)
	}
	text := "big.iso            100%[===================>] 400.00M  22.0MB/s    in 4s"
	wget.done("\r"+text+"\n\n", text, "")

	cargo := add("cargo")
	for i := range 40 {
		unit := fmt.Sprintf("   Compiling crate-number-%d v1.0.%d", i, i)
		building := fmt.Sprintf("    Building [%-20s] %d/40: crate-number-%d", strings.Repeat("=", i/2)+">", i, i)
		cargo.done("\r\x1b[K\x1b[1m\x1b[32m   Compiling\x1b[0m"+unit[12:]+"\n", unit)
		cargo.print(building+"\r", 400*time.Millisecond, building)
	}
	cargo.done("\r\x1b[K    Finished `dev` profile in 16.00s\n", "    Finished `dev` profile in 16.00s")

	docker := add("docker pull")
	docker.done("latest: Pulling from library/postgres\n", "latest: Pulling from library/postgres")
	layers := []string{"a3ed95caeb02", "b1c2d3e4f5a6", "c0ffee123456", "d00dfeed4242"}
	rows := make([]string, len(layers))
	set := func(i int, status string) string {
		rows[i] = layers[i] + ": " + status
		return fmt.Sprintf("\x1b[%dA\x1b[2K\r%s\r\x1b[%dB", len(layers)-i, rows[i], len(layers)-i)
	}
	first := ""
	for i := range layers {
		first += layers[i] + ": Pulling fs layer \n"
		rows[i] = layers[i] + ": Pulling fs layer "
	}
	docker.print(first, 300*time.Millisecond, rows...)
	for step := range 60 {
		i := step % len(layers)
		docker.print(set(i, fmt.Sprintf("Downloading [%-15s] %d.0MB/15.0MB", strings.Repeat("=", step/4)+">", step/4)), 250*time.Millisecond, rows[i])
	}
	for i := range layers {
		docker.print(set(i, "Pull complete "), 300*time.Millisecond, rows[i])
	}
	docker.final = append(docker.final, rows...)
	digest := "Digest: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	docker.done(digest+"\nStatus: Downloaded newer image for postgres:latest\n", digest, "Status: Downloaded newer image for postgres:latest")
	return all
}

// TestRedrawsBecomeTheirLastState checks that what programs redraw becomes little more than what is on the screen in
// the end, that each line was on the screen as it is, and that it makes no difference how the stream is cut.
func TestRedrawsBecomeTheirLastState(t *testing.T) {
	for name, r := range recordings() {
		t.Run(name, func(t *testing.T) {
			got := r.play(0)
			size, want := 0, 0
			rest := r.final
			for _, l := range got {
				l = strings.TrimSuffix(l, "…")
				size += len(l) + 1
				if !r.seen[l] {
					t.Errorf("got line %q, which was never on the screen", l)
				}
				if len(rest) > 0 && l == rest[0] {
					rest = rest[1:]
				}
			}
			for _, l := range r.final {
				want += len(l) + 1
			}
			printed := 0
			for _, p := range r.parts {
				printed += len(p.text)
			}
			t.Logf("%d bytes printed, %d on the screen, %d in %d lines", printed, want, size, len(got))
			if len(rest) > 0 {
				t.Errorf("got lines %q without %q, want all that is on the screen", got, rest[0])
			}
			if size > want*3/2 {
				t.Errorf("got %d bytes in %d lines, want at most 1.5 times %d:\n%s", size, len(got), want, strings.Join(got, "\n"))
			}
			for cut := 1; cut < 4; cut++ {
				if cut := r.play(cut); !slices.Equal(cut, got) {
					t.Errorf("cut: got %q, want %q", cut, got)
				}
			}
		})
	}
}

// FuzzRedraws checks that what is held is bounded, and that nothing is left of it, whenever the stream pauses.
func FuzzRedraws(f *testing.F) {
	for _, s := range []string{"a\rb", "a\nb\n\x1b[2A\x1b[2KA\nB\bC\x1b[2Bc\n\x1b[1F\x1b[Jd\x1b[9Ge", "\x1b[?25la\nb\n\x1b[3A\x1b[5Cc\x1b[2Jd\x1b[K\r", "\x1b[99A" + strings.Repeat("x", MaxLineBytes+1) + "\n\x1b[1A"} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var c Cleaner
		got := collected{}
		now := time.Unix(0, 0)
		for rest := in; len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 9))
			c.Tick(now, &got)
			c.Feed(rest[:n], &got)
			rest = rest[n:]
			now = now.Add(time.Duration(rnd.IntN(500)) * time.Millisecond)
			switch rnd.IntN(8) {
			case 0:
				c.Settle(&got)
			case 1:
				now = now.Add(10 * time.Second)
				c.Tick(now, &got)
				fallthrough
			case 2, 3:
				c.Flush(&got)
			}
			if len(c.text) > MaxLineBytes || c.stored > len(c.text) || c.back && c.at > len(c.text) {
				t.Fatalf("got %d bytes unfinished, %d stored, cursor at %d", len(c.text), c.stored, c.at)
			}
			if f := c.frame; f != nil {
				size := 0
				for i := range f.rows {
					size += len(f.rows[i].text)
					if !f.on && i != f.at && !f.rows[i].blank() && !bytes.Equal(f.rows[i].text, f.rows[i].shown) {
						t.Fatalf("got row %q, which is neither held nor in the sink", f.rows[i].text)
					}
				}
				if f.at > len(f.rows) || len(f.rows) > maxRows+1 || size > maxRowBytes+2*MaxLineBytes {
					t.Fatalf("got %d rows of %d bytes, cursor in row %d", len(f.rows), size, f.at)
				}
			}
		}
		c.Finish(&got)
		for _, l := range got {
			if !utf8.ValidString(l) || len(l) > MaxLineBytes+len("+…") || strings.ContainsAny(l, "\n\r\b\x1b") {
				t.Fatalf("got %q, want a clean line", l)
			}
		}
	})
}
