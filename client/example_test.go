package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// A session is a shell: its state persists from one command to the next.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "") // this user's daemon
	if errors.Is(err, client.ErrNoDaemon) {
		log.Fatal("start a daemon first: trl serve --detach")
	}
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	s, err := c.NewSession(ctx, api.SessionCreateParams{Cwd: "/usr"})
	if err != nil {
		log.Panic(err)
	}
	defer s.Destroy(ctx)

	for _, command := range []string{"cd lib; greeting=hello", "echo $greeting from $PWD; ls missing"} {
		r, err := s.Run(ctx, command)
		if err != nil {
			log.Panic(err)
		}
		fmt.Printf("%s: %s", r.Status(), r.Stdout)
	}
	// prints:
	// exit 0: exit 2: hello from /usr/lib
}

// A command that is started runs on while the program does something else.
func ExampleSession_Start() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	s, err := c.NewSession(ctx, api.SessionCreateParams{})
	if err != nil {
		log.Panic(err)
	}
	defer s.Destroy(ctx)

	e, err := s.StartWith(ctx, api.ExecCommand{Command: "read name; echo hello $name", StdinOpen: true})
	if err != nil {
		log.Panic(err)
	}
	if _, err := e.Input(ctx, api.ExecInputParams{Data: "world\n", EOF: true}); err != nil {
		log.Panic(err)
	}
	r, err := e.Wait(ctx)
	if err != nil {
		log.Panic(err)
	}
	fmt.Print(r.Stdout)
	// prints:
	// hello world
}

// A stream has the output while the command writes it, and resumes by itself
// after a lost connection.
func ExampleSession_Stream() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Panic(err)
	}
	defer c.Close()
	s, err := c.NewSession(ctx, api.SessionCreateParams{})
	if err != nil {
		log.Panic(err)
	}
	defer s.Destroy(ctx)

	stream, err := s.Stream(ctx, "for i in 1 2 3; do echo line $i; done; exit 3")
	if err != nil {
		log.Panic(err)
	}
	defer stream.Close()
	var text bytes.Buffer
	for chunk, err := range stream.Chunks() {
		if err != nil {
			log.Panic(err)
		}
		data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
		if err != nil {
			log.Panic(err)
		}
		text.Write(data)
	}
	_, _ = text.WriteTo(os.Stdout)
	fmt.Println(stream.Result().Code())
	// prints:
	// line 1
	// line 2
	// line 3
	// 3
}
