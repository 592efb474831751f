// An extender that decides nothing: /filter passes every node on, /bind posts the Binding. Whatever
// kube-scheduler takes longer with it than without one is the price of the protocol itself, in a
// compiled language with one allocation in sight; no extender that does more can cost less.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type filterArgs struct {
	NodeNames json.RawMessage
}

type bindArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: passthrough LISTEN SERVER CA CERT KEY")
	}
	listen, server := os.Args[1], os.Args[2]
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(os.Args[3])))
	own := must(tls.LoadX509KeyPair(os.Args[4], os.Args[5]))
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
	}}
	http.HandleFunc("/filter", func(w http.ResponseWriter, r *http.Request) {
		var args filterArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"NodeNames":%s}`, args.NodeNames)
	})
	http.HandleFunc("/bind", func(w http.ResponseWriter, r *http.Request) {
		var args bindArgs
		err := json.NewDecoder(r.Body).Decode(&args)
		if err == nil {
			err = bind(client, server, &args)
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		json.NewEncoder(w).Encode(map[string]string{"Error": said})
	})
	log.Fatal(http.ListenAndServe(listen, nil))
}

func bind(client *http.Client, server string, args *bindArgs) error {
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", server, args.PodNamespace, args.PodName)
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q,"uid":%q},`+
		`"target":{"apiVersion":"v1","kind":"Node","name":%q}}`, args.PodName, args.PodUID, args.Node)
	answer, err := client.Post(url, "application/json", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%d: %s", answer.StatusCode, text)
	}
	return err
}
