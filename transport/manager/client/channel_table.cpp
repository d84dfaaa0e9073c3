// gRPC's channels. An attempt runs on the thread that asks.
#include "transport/manager/client/channel_table.hpp"

#include <google/protobuf/message_lite.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "core/whole_file.hpp"

namespace cenote::manager {

namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;
using message_stub = grpc::TemplatedGenericStub<google::protobuf::MessageLite, google::protobuf::MessageLite>;

constexpr std::size_t longest_pem = std::size_t{1} << 20U;

std::string basic_authorization(const std::string& account, const std::string& password) {
  const std::string login = account + ":" + password;
  std::string text(4 * ((login.size() + 2) / 3) + 1, '\0');
  const int size =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(login.data()), static_cast<int>(login.size()));
  text.resize(static_cast<std::size_t>(size));
  return "Basic " + text;
}

result<std::string> read_pem(const std::string& path) {
  if (path.empty()) return std::string();
  auto text = read_whole(path, longest_pem);
  if (!text) return std::unexpected(text.error());
  if (*text && (*text)->size() <= longest_pem) return std::move(**text);
  return fail(error_code::invalid_argument, path + ": a file in PEM is needed, of 1 MiB at most");
}

result<std::shared_ptr<grpc::ChannelCredentials>> make_security(const client_tls& tls) {
  if (!tls.is_on()) return grpc::InsecureChannelCredentials();
  if (tls.certificate.empty() != tls.key.empty()) {
    return fail(error_code::invalid_argument, "a client's certificate needs its key, and a key its certificate");
  }
  grpc::SslCredentialsOptions options;
  for (const auto& [path, text] :
       {std::pair(&tls.ca, &options.pem_root_certs), std::pair(&tls.certificate, &options.pem_cert_chain),
        std::pair(&tls.key, &options.pem_private_key)}) {
    auto content = read_pem(*path);
    if (!content) return std::unexpected(content.error());
    *text = std::move(*content);
  }
  return grpc::SslCredentials(options);
}

/// Waits for a connection. gRPC reports the first attempt that failed at once.
bool connect(grpc::Channel& channel, system_clock::time_point end) {
  for (;;) {
    const auto state = channel.GetState(true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel.WaitForStateChange(state, end)) return false;
  }
}

/// A queue for one call. gRPC wants it shut down and empty at its end.
class single_queue {
 public:
  single_queue() = default;
  single_queue(const single_queue&) = delete;
  single_queue& operator=(const single_queue&) = delete;
  ~single_queue() {
    queue_.Shutdown();
    wait();
  }

  [[nodiscard]] grpc::CompletionQueue* get() noexcept { return &queue_; }
  void wait() {
    void* tag = nullptr;
    bool ok = false;
    (void)queue_.Next(&tag, &ok);
  }

 private:
  grpc::CompletionQueue queue_;
};

call_attempt refused_attempt(answer_code code, std::string message) {
  return {.state = attempt_state::answered, .code = code, .message = std::move(message)};
}

/// The attempt behind a status that is no success. A manager refuses with some of them; the others may come from any
/// place between the two processes.
call_attempt attempt_behind(const grpc::Status& status) {
  std::string message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return refused_attempt(answer_code::permission_denied, std::move(message));
    case grpc::StatusCode::RESOURCE_EXHAUSTED: return refused_attempt(answer_code::rate_limited, std::move(message));
    case grpc::StatusCode::INVALID_ARGUMENT: return refused_attempt(answer_code::invalid_argument, std::move(message));
    case grpc::StatusCode::UNIMPLEMENTED:
      return refused_attempt(answer_code::unsupported, "this port has no such call: " + message);
    case grpc::StatusCode::DEADLINE_EXCEEDED: message = "no answer in time"; break;
    default: message = "the answer is lost: " + message;
  }
  return {.state = attempt_state::unanswered, .message = std::move(message)};
}

}  // namespace

channel_table::channel_table(client_limits limits, std::string authorization,
                             std::shared_ptr<grpc::ChannelCredentials> security)
    : limits_(limits), authorization_(std::move(authorization)), security_(std::move(security)) {}

channel_table::~channel_table() = default;

result<std::unique_ptr<channel_table>> channel_table::make(const client_options& options) {
  auto security = make_security(options.tls);
  if (!security) return std::unexpected(security.error());
  std::string authorization;
  if (!options.account.empty()) {
    const auto password = read_password(options.password_file);
    if (!password) return std::unexpected(password.error());
    authorization = basic_authorization(options.account, *password);
  }
  return std::unique_ptr<channel_table>(
      new channel_table(options.limits, std::move(authorization), std::move(*security)));
}

std::shared_ptr<grpc::Channel> channel_table::channel_to(const std::string& address) {
  const std::lock_guard lock(mutex_);
  auto& channel = channels_[address];
  if (channel != nullptr) return channel;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new channel does not wait for an old one's pause
  channel = grpc::CreateCustomChannel("dns:///" + address, security_, arguments);
  return channel;
}

void channel_table::drop(const std::string& address) {
  const std::lock_guard lock(mutex_);
  channels_.erase(address);
}

call_attempt channel_table::ask(const std::string& address, std::string_view path, const call_messages& messages,
                                milliseconds limit) {
  const auto end = system_clock::now() + limit;
  const auto channel = channel_to(address);
  if (!connect(*channel, std::min(end, system_clock::now() + limits_.connection))) {
    drop(address);  // the next attempt begins at once
    return {.state = attempt_state::unsent, .message = "no manager can be reached there, or TLS does not come about"};
  }
  grpc::ClientContext context;
  context.set_deadline(std::min(end, system_clock::now() + limits_.attempt));
  if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
  grpc::Status status;
  {
    single_queue queue;
    message_stub stub(channel);
    const auto reader = stub.PrepareUnaryCall(&context, std::string(path), messages.request, queue.get());
    reader->StartCall();
    reader->Finish(&messages.answer, &status, nullptr);
    queue.wait();
  }
  if (!status.ok()) return attempt_behind(status);
  auto head = messages.head(messages.answer);
  if (head.code == answer_code::unspecified) {
    return {.state = attempt_state::unanswered, .message = "an answer without a code"};
  }
  return {.state = attempt_state::answered,
          .code = head.code,
          .message = std::move(head.message),
          .leader = std::move(head.leader)};
}

}  // namespace cenote::manager
