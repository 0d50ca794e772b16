package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"pmcp/server/page"
	"pmcp/server/project"
)

func (s *screen) openCommand() *cobra.Command {
	var noBrowser bool
	c := &cobra.Command{
		Use: "open", Short: "Show processes, logs and errors in a browser", Args: takesNone,
		Long:    "Serves one page on a loopback port and opens it in the browser. It ends when the page is closed.",
		Example: "  pmcp open\n  pmcp open --no-browser    # prints the address, for a browser elsewhere on this machine",
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.open(cmd.Context(), noBrowser) },
	}
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the address; who knows it can stop processes")
	return c
}

// open serves the page. A server of its own answers its calls, as it would an agent's.
func (s *screen) open(ctx context.Context, noBrowser bool) error {
	s.found = true
	session, err := startSession(ctx, project.PageClient, s.err)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	read, done, err := s.pageReads(ctx)
	if err != nil {
		return err
	}
	defer done()
	web, err := page.Listen(s.callForPage(session), read)
	if err != nil {
		return err
	}
	if noBrowser {
		if err := errors.Join(s.out.println(web.Address()), s.out.flush()); err != nil {
			return err
		}
		return web.Serve(ctx)
	}
	remove, err := browse(ctx, web.Address())
	if err != nil {
		return fmt.Errorf("cannot open a browser: %w; pmcp open --no-browser prints the address", err)
	}
	defer remove()
	if err := errors.Join(s.out.println("pmcp: the page is in your browser; closing it, or Ctrl-C, ends this command"), s.out.flush()); err != nil {
		return err
	}
	return web.Serve(ctx)
}

// browse opens an address in the user's browser. The command line of the browser, which
// other users can see, has only the name of a file that redirects to it. remove deletes
// the file.
func browse(ctx context.Context, address string) (remove func(), err error) {
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "pmcp-open-") // mode 0700
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=` + html.EscapeString(address) + `">`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		remove()
		return nil, err
	}
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	if out, err := exec.CommandContext(ctx, opener, file).CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("%s: %w %s", opener, err, strings.TrimSpace(string(out)))
	}
	return remove, nil
}
