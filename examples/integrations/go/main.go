// Command greeting starts a run of the workflow "greeting", follows its log, cancels it, and handles errors.
//
//	greeting unix:///run/toband/toban.sock
//	TOBAN_TOKEN=toban_… greeting 127.0.0.1:7070
//	TOBAN_TOKEN=toban_… TOBAN_CA=ca.crt greeting toban.example.org:7233
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	toban "greeting/gen/toban/v1"
)

const workflow = "greeting"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: greeting ADDRESS")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := greet(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "greeting:", err)
		os.Exit(1)
	}
}

// bearer is a token, which each call sends.
type bearer string

func (token bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(token)}, nil
}

// RequireTransportSecurity is false for the sake of ports of this machine, which need no TLS.
func (bearer) RequireTransportSecurity() bool { return false }

func connect(address string) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if ca := os.Getenv("TOBAN_CA"); ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(ca, ""); err != nil {
			return nil, err
		}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if token := os.Getenv("TOBAN_TOKEN"); token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	return grpc.NewClient(address, options...)
}

func greet(ctx context.Context, address string) error {
	connection, err := connect(address)
	if err != nil {
		return err
	}
	defer connection.Close()
	runs := toban.NewRunServiceClient(connection)

	_, err = start(ctx, runs, "no-such-workflow", map[string]any{})
	if err := expect(err, "WORKFLOW_NOT_FOUND"); err != nil {
		return err
	}
	_, err = start(ctx, runs, workflow, map[string]any{"times": "many"})
	if err := expect(err, "INVALID_PARAMS"); err != nil {
		return err
	}

	run, err := start(ctx, runs, workflow, map[string]any{"name": "Ada", "times": 2})
	if err != nil {
		return err
	}
	fmt.Println("started a run of", run.GetWorkflow())
	_, err = start(ctx, runs, workflow, map[string]any{"name": "Grace"})
	if err := expect(err, "RUN_ALREADY_ACTIVE"); err != nil {
		return err
	}
	if active := infoOf(err).GetMetadata()["run_id"]; active != run.GetId() {
		return fmt.Errorf("the active run is %s, not %s", active, run.GetId())
	}

	end, err := follow(ctx, runs, run.GetId(), func(line string) error {
		if !strings.HasPrefix(line, "wait | ") {
			return nil
		}
		_, err := runs.CancelRun(ctx, &toban.CancelRunRequest{Id: run.GetId(), Reason: "greeted enough"})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("ended:", end.GetRunState(), "complete:", end.GetComplete())

	_, err = runs.CancelRun(ctx, &toban.CancelRunRequest{Id: run.GetId()})
	return expect(err, "RUN_ALREADY_TERMINAL")
}

func start(ctx context.Context, runs toban.RunServiceClient, name string, params map[string]any) (*toban.Run, error) {
	values, err := structpb.NewStruct(params)
	if err != nil {
		return nil, err
	}
	started, err := runs.StartRun(ctx, &toban.StartRunRequest{Workflow: name, Params: values})
	return started.GetRun(), err
}

// follow prints each line of the log when it arrives, and passes it on. It returns when the run has ended.
func follow(ctx context.Context, runs toban.RunServiceClient, id string, got func(string) error) (*toban.LogEnd, error) {
	stream, err := runs.StreamLogs(ctx, &toban.StreamLogsRequest{
		RunId:   id,
		Follow:  true,
		Streams: []toban.LogStream{toban.LogStream_LOG_STREAM_STDOUT},
	})
	if err != nil {
		return nil, err
	}
	// A record may end within a line.
	parts := map[string]string{}
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if end := message.GetEnd(); end != nil {
			for step, part := range parts {
				if part != "" {
					fmt.Println(step, "|", part)
				}
			}
			return end, nil
		}
		step := message.GetChunk().GetStep()
		for _, record := range message.GetChunk().GetRecords() {
			parts[step] += string(record.GetData())
		}
		for {
			line, rest, found := strings.Cut(parts[step], "\n")
			if !found {
				break
			}
			parts[step] = rest
			fmt.Println(step, "|", line)
			if err := got(step + " | " + line); err != nil {
				return nil, err
			}
		}
	}
}

// expect prints an error that has the reason, and returns any other.
func expect(err error, reason string) error {
	if info := infoOf(err); info.GetDomain() != "toban" || info.GetReason() != reason {
		return fmt.Errorf("expected %s, got: %v", reason, err)
	}
	fmt.Println("refused:", reason)
	for _, detail := range status.Convert(err).Details() {
		if request, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range request.GetFieldViolations() {
				fmt.Printf("  %s: %s\n", violation.GetField(), violation.GetDescription())
			}
		}
	}
	return nil
}

// infoOf returns the reason of an error and its metadata, or nil.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}
