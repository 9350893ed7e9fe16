// A server that speaks S3's protocol and checks every signature: buckets are folders of ROOT/data. Usage: s3-gateway ADDRESS ROOT KEY SECRET CERTIFICATE PRIVATE-KEY.
package main

import (
	"fmt"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

// The value that an option takes: its type is internal to the module.
func made[T any](_ func(*T) s3api.Option) *T {
	return new(T)
}

func serve(address, root, key, secret, certificate, private string) error {
	data, notes := root+"/data", root+"/meta"
	sidecar, err := meta.NewSideCar(notes)
	if err != nil {
		return err
	}
	backend, err := posix.New(data, sidecar, posix.PosixOpts{SideCarDir: notes})
	if err != nil {
		return err
	}
	accounts, err := auth.New(&auth.Opts{RootAccount: auth.Account{Access: key, Secret: secret, Role: auth.RoleAdmin}})
	if err != nil {
		return err
	}
	tls := made(s3api.WithTLS)
	if err := tls.SetCertificate(certificate, private); err != nil {
		return err
	}
	user := middlewares.RootUserConfig{Access: key, Secret: secret}
	server, err := s3api.New(backend, user, "us-east-1", accounts, nil, nil, nil, nil, s3api.WithQuiet(),
		s3api.WithConcurrencyLimiter(64, 64), s3api.WithTLS(tls))
	if err != nil {
		return err
	}
	return server.ServeMultiPort([]string{address})
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: s3-gateway ADDRESS ROOT KEY SECRET CERTIFICATE PRIVATE-KEY")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
