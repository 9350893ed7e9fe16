// The Spark operator as one program of the test bed: its controllers (`controller start`) and its webhooks (`webhook start`) are its own.
//
// Called as `spark-submit` it stands in for that, and `drivers` for what runs in drivers. `certificates FOLDER` writes what the webhooks need, which take no keys but RSA's.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeflow/spark-operator/v2/cmd/operator/controller"
	"github.com/kubeflow/spark-operator/v2/cmd/operator/webhook"
	"github.com/spf13/cobra"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if filepath.Base(os.Args[0]) == "spark-submit" {
		return submit(os.Args[1:])
	}
	command := &cobra.Command{Use: "spark-operator", SilenceUsage: true}
	command.AddCommand(controller.NewCommand(), webhook.NewCommand(), &cobra.Command{
		Use:  "certificates FOLDER",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return certificates(args[0]) },
	})
	access := ""
	ends := &cobra.Command{
		Use:  "drivers",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return drivers(access) },
	}
	ends.Flags().StringVar(&access, "kubeconfig", "", "how to reach the API server")
	command.AddCommand(ends)
	return command.Execute()
}

// certificates writes an authority and a server's certificate for this machine.
func certificates(folder string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	now := time.Now()
	certificate := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "spark-operator"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, certificate, certificate, &key.PublicKey, key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, content := range map[string][]byte{"ca.crt": text, "tls.crt": text, "tls.key": private} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
