package process

import "golang.org/x/sys/unix"

const termiosRequest = unix.TCGETS
