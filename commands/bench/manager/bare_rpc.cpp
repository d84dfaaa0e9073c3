#include "commands/bench/manager/bare_rpc.hpp"

#include <vector>

namespace cenote::bench {

namespace {

constexpr int tag_of_call = 0;

/// One call; gRPC deletes it.
class echo_call final : public grpc::ServerGenericBidiReactor {
 public:
  explicit echo_call(const grpc::ByteBuffer& answer) : answer_(answer) { StartRead(&request_); }

  void OnReadDone(bool) override { StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK); }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
};

}  // namespace

echo_rpc_server::echo_service::echo_service(const std::string& answer) {
  const grpc::Slice bytes(answer);
  answer_ = grpc::ByteBuffer(&bytes, 1);
}

grpc::ServerGenericBidiReactor* echo_rpc_server::echo_service::CreateReactor(grpc::GenericCallbackServerContext*) {
  return std::make_unique<echo_call>(answer_).release();
}

result<std::unique_ptr<echo_rpc_server>> echo_rpc_server::start(const std::string& answer) {
  std::unique_ptr<echo_rpc_server> made(new echo_rpc_server(answer));
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(made->address_.host + ":0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&made->service_);
  made->server_ = builder.BuildAndStart();
  if (made->server_ == nullptr || port == 0) return fail(error_code::system, "gRPC's server does not start");
  made->address_.port = static_cast<std::uint16_t>(port);
  return made;
}

echo_rpc_server::~echo_rpc_server() {
  if (server_ != nullptr) server_->Shutdown();
}

bare_rpc_client::bare_rpc_client(const endpoint& server)
    : stub_(grpc::CreateChannel(server.text(), grpc::InsecureChannelCredentials())) {}

bare_rpc_client::~bare_rpc_client() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

result<void> bare_rpc_client::call(const std::string& method, const grpc::ByteBuffer& request) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  grpc::Status status;
  answer_.Clear();
  const auto reader = stub_.PrepareUnaryCall(&context, method, request, &queue_);
  reader->StartCall();
  reader->Finish(&answer_, &status, const_cast<int*>(&tag_of_call));
  void* tag = nullptr;
  bool ok = false;
  if (!queue_.Next(&tag, &ok) || !status.ok()) {
    return fail(error_code::system, method + ": " + status.error_message());
  }
  return {};
}

std::string bare_rpc_client::answer() const {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (!answer_.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& each : slices) bytes.append(reinterpret_cast<const char*>(each.begin()), each.size());
  return bytes;
}

}  // namespace cenote::bench
