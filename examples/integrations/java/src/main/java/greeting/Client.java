package greeting;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import toban.v1.CancelRunRequest;
import toban.v1.LogEnd;
import toban.v1.LogRecord;
import toban.v1.LogStream;
import toban.v1.Run;
import toban.v1.RunServiceGrpc;
import toban.v1.RunServiceGrpc.RunServiceBlockingStub;
import toban.v1.StartRunRequest;
import toban.v1.StreamLogsRequest;
import toban.v1.StreamLogsResponse;

/**
 * Starts a run of the workflow "greeting", follows its log, cancels it, and handles errors.
 *
 * <pre>
 * java -jar target/greeting.jar unix:///run/toband/toban.sock
 * TOBAN_TOKEN=toban_… java -jar target/greeting.jar 127.0.0.1:7070
 * TOBAN_TOKEN=toban_… TOBAN_CA=ca.crt java -jar target/greeting.jar toban.example.org:7233
 * </pre>
 */
public final class Client {
    private static final String WORKFLOW = "greeting";

    private final RunServiceBlockingStub stub;

    private Client(ManagedChannel channel) {
        stub = RunServiceGrpc.newBlockingStub(channel);
    }

    private static ManagedChannel connect(String address) throws IOException {
        String ca = System.getenv("TOBAN_CA");
        ChannelCredentials transport = ca == null
                ? InsecureChannelCredentials.create()
                : TlsChannelCredentials.newBuilder().trustManager(new File(ca)).build();
        ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(address, transport);
        String token = System.getenv("TOBAN_TOKEN");
        if (token != null) {
            Metadata headers = new Metadata();
            headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
            builder.intercept(MetadataUtils.newAttachHeadersInterceptor(headers));
        }
        return builder.build();
    }

    public static void main(String[] arguments) throws InterruptedException, IOException {
        if (arguments.length != 1) {
            System.err.println("usage: java -jar target/greeting.jar ADDRESS");
            System.exit(2);
        }
        ManagedChannel channel = connect(arguments[0]);
        int code = 0;
        try {
            new Client(channel).greet();
        } catch (RuntimeException error) {
            error.printStackTrace();
            code = 1;
        } finally {
            channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
        }
        System.exit(code);
    }

    private void greet() {
        refused("WORKFLOW_NOT_FOUND", () -> start("no-such-workflow", Map.of()));
        refused("INVALID_PARAMS", () -> start(WORKFLOW, Map.of("times", text("many"))));

        Run run = start(WORKFLOW, Map.of("name", text("Ada"), "times", number(2)));
        System.out.println("started a run of " + run.getWorkflow());
        ErrorInfo active = refused("RUN_ALREADY_ACTIVE", () -> start(WORKFLOW, Map.of("name", text("Grace"))));
        if (!active.getMetadataOrDefault("run_id", "").equals(run.getId())) {
            throw new IllegalStateException("the active run is " + active.getMetadataMap() + ", not " + run.getId());
        }

        LogEnd end = follow(run.getId(), line -> {
            if (line.startsWith("wait | ")) {
                cancel(run.getId(), "greeted enough");
            }
        });
        System.out.println("ended: " + end.getRunState() + " complete: " + end.getComplete());

        refused("RUN_ALREADY_TERMINAL", () -> cancel(run.getId(), ""));
    }

    private Run start(String workflow, Map<String, Value> params) {
        StartRunRequest request = StartRunRequest.newBuilder()
                .setWorkflow(workflow)
                .setParams(Struct.newBuilder().putAllFields(params))
                .build();
        return runs(60).startRun(request).getRun();
    }

    private void cancel(String id, String reason) {
        runs(60).cancelRun(CancelRunRequest.newBuilder().setId(id).setReason(reason).build());
    }

    /** Prints each line of the log when it arrives, and passes it on. Returns when the run has ended. */
    private LogEnd follow(String id, Consumer<String> got) {
        StreamLogsRequest request = StreamLogsRequest.newBuilder()
                .setRunId(id)
                .setFollow(true)
                .addStreams(LogStream.LOG_STREAM_STDOUT)
                .build();
        // A record may end within a line or a character.
        Map<String, ByteArrayOutputStream> parts = new HashMap<>();
        Iterator<StreamLogsResponse> messages = runs(120).streamLogs(request);
        while (messages.hasNext()) {
            StreamLogsResponse message = messages.next();
            if (message.hasEnd()) {
                parts.forEach((step, part) -> {
                    if (part.size() > 0) {
                        System.out.println(step + " | " + part.toString(StandardCharsets.UTF_8));
                    }
                });
                return message.getEnd();
            }
            String step = message.getChunk().getStep();
            ByteArrayOutputStream part = parts.computeIfAbsent(step, name -> new ByteArrayOutputStream());
            for (LogRecord record : message.getChunk().getRecordsList()) {
                for (byte each : record.getData().toByteArray()) {
                    if (each != '\n') {
                        part.write(each);
                        continue;
                    }
                    String line = step + " | " + part.toString(StandardCharsets.UTF_8);
                    part.reset();
                    System.out.println(line);
                    got.accept(line);
                }
            }
        }
        throw new IllegalStateException("the log has no end");
    }

    /** Prints the error of a call if it has the reason, and returns its details. Fails otherwise. */
    private static ErrorInfo refused(String reason, Runnable call) {
        try {
            call.run();
        } catch (StatusRuntimeException error) {
            Optional<ErrorInfo> info = detail(error, ErrorInfo.class);
            if (info.isEmpty() || !info.get().getDomain().equals("toban") || !info.get().getReason().equals(reason)) {
                throw error;
            }
            System.out.println("refused: " + reason);
            detail(error, BadRequest.class).ifPresent(request -> request.getFieldViolationsList().forEach(
                    each -> System.out.println("  " + each.getField() + ": " + each.getDescription())));
            return info.get();
        }
        throw new IllegalStateException("expected " + reason + ", got: success");
    }

    /** Returns the detail of the given type, if the error has one. */
    private static <T extends com.google.protobuf.Message> Optional<T> detail(
            StatusRuntimeException error, Class<T> type) {
        Status status = StatusProto.fromThrowable(error);
        if (status != null) {
            for (com.google.protobuf.Any each : status.getDetailsList()) {
                if (each.is(type)) {
                    try {
                        return Optional.of(each.unpack(type));
                    } catch (InvalidProtocolBufferException broken) {
                        throw new IllegalStateException(broken);
                    }
                }
            }
        }
        return Optional.empty();
    }

    private RunServiceBlockingStub runs(int seconds) {
        return stub.withDeadlineAfter(seconds, TimeUnit.SECONDS);
    }

    private static Value text(String value) {
        return Value.newBuilder().setStringValue(value).build();
    }

    private static Value number(double value) {
        return Value.newBuilder().setNumberValue(value).build();
    }
}
