#include "transport/http/request_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <charconv>
#include <list>
#include <optional>
#include <thread>
#include <utility>

namespace cenote::http {

namespace {

namespace asio = boost::asio;

using steady = std::chrono::steady_clock;
using loop_executor = asio::io_context::executor_type;
using stream_socket = asio::basic_stream_socket<asio::generic::stream_protocol, loop_executor>;
using tls_stream = asio::ssl::stream<stream_socket&>;
using loop_timer = asio::basic_waitable_timer<steady, asio::wait_traits<steady>, loop_executor>;
using readiness = asio::posix::basic_stream_descriptor<loop_executor>;
using failure_code = boost::system::error_code;

constexpr auto accept_delay = std::chrono::milliseconds(100);  ///< when this process is out of descriptors
constexpr int requests_in_a_row = 32;                          ///< of one connection before others get their turn
constexpr std::size_t answer_piece = std::size_t{4} << 20U;    ///< bytes for which the answer's limit is meant
constexpr std::size_t kept_answer = std::size_t{1} << 20U;     ///< larger texts are freed when they are sent

/// Counters of a thread; others only read them.
struct alignas(64) thread_figures {
  std::atomic<std::uint64_t> accepted = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::atomic<std::uint64_t> displaced = 0;
  std::atomic<std::uint64_t> expired = 0;
  std::atomic<std::uint64_t> failed_handshakes = 0;
  std::array<std::atomic<std::uint64_t>, 6> by_class{};
  std::atomic<std::uint64_t> bytes_in = 0;
  std::atomic<std::uint64_t> bytes_out = 0;
};

void count(std::atomic<std::uint64_t>& counter, std::uint64_t number = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
}

enum class peer_stage : std::uint8_t {
  handshake,  ///< of TLS
  idle,       ///< between two requests
  reading,    ///< a request has begun
  writing,    ///< an answer
  lingering,  ///< the last answer is sent; the client may take it
};

/// In a time that depends on the length of `sent` alone.
bool is_equal_secret(std::string_view sent, std::string_view secret) noexcept {
  unsigned difference = sent.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    difference |= static_cast<unsigned char>(sent[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return difference == 0;
}

std::string_view bearer_token(std::string_view authorization) noexcept {
  constexpr std::string_view scheme = "Bearer ";
  if (!is_same_name(authorization.substr(0, scheme.size()), scheme)) return {};
  authorization.remove_prefix(scheme.size());
  return authorization.substr(std::min(authorization.find_first_not_of(' '), authorization.size()));
}

void append_number(std::string& out, std::size_t value) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

result<std::unique_ptr<asio::ssl::context>> open_tls(const tls_files& files) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  failure_code wrong;
  const auto complain = [&](const std::string& file, std::string_view use) {
    return fail(error_code::invalid_argument, file + " cannot be used as " + std::string(use) + ": " + wrong.message());
  };
  ::SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  ::SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  if (context->use_certificate_chain_file(files.certificate, wrong)) {
    return complain(files.certificate, "a certificate (PEM)");
  }
  if (context->use_private_key_file(files.key, asio::ssl::context::pem, wrong)) {
    return complain(files.key, "the key of " + files.certificate + " (PEM)");
  }
  if (files.client_ca.empty()) return context;
  if (context->load_verify_file(files.client_ca, wrong)) {
    return complain(files.client_ca, "the certificates that sign clients' (PEM)");
  }
  context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  ::SSL_CTX_set_client_CA_list(context->native_handle(), ::SSL_load_client_CA_file(files.client_ca.c_str()));
  constexpr std::array<unsigned char, 6> name{'c', 'e', 'n', 'o', 't', 'e'};
  ::SSL_CTX_set_session_id_context(context->native_handle(), name.data(), name.size());
  return context;
}

/// A socket that listens.
struct listening_socket_entry {
  unique_fd socket;
  bool has_tls = false;
};

/// The file of a Unix socket, removed at the end.
class socket_file {
 public:
  explicit socket_file(std::string path) : path_(std::move(path)), number_(file_number(path_)) {}
  socket_file(socket_file&& other) noexcept : path_(std::move(other.path_)), number_(std::exchange(other.number_, 0)) {}
  socket_file& operator=(socket_file&&) = delete;
  socket_file(const socket_file&) = delete;
  socket_file& operator=(const socket_file&) = delete;
  ~socket_file() { remove_unix_socket(path_, number_); }

 private:
  std::string path_;
  ino_t number_;
};

}  // namespace

/// Shared by all threads; immutable while they run, but for the budget.
class request_server::shared_parts {
 public:
  shared_parts(const request_server_options& options, std::unique_ptr<asio::ssl::context> context)
      : budget(options.limits.buffers), tls(std::move(context)) {}

  buffer_budget budget;
  std::unique_ptr<asio::ssl::context> tls;
  std::vector<listening_socket_entry> listeners;
  std::vector<socket_file> files;
};

/// A thread with its connections.
class request_server::service_thread {
 public:
  explicit service_thread(const request_server& server) : server_(server), loop_(1), timer_(loop_) {}
  service_thread(const service_thread&) = delete;
  service_thread& operator=(const service_thread&) = delete;
  ~service_thread();

  [[nodiscard]] result<void> listen();
  void set_handler(std::unique_ptr<request_handler> handler) noexcept { handler_ = std::move(handler); }
  /// Begins to accept and answer.
  void start();
  /// Begins to end; any thread.
  void stop();
  void join() noexcept;

  /// Takes a connection from another thread, or this one.
  void hand_over(unique_fd socket, bool has_tls, const service_thread& giver);
  [[nodiscard]] std::size_t load() const noexcept { return load_.load(std::memory_order_relaxed); }
  [[nodiscard]] const thread_figures& figures() const noexcept { return figures_; }

  // Of its connections, on its own thread.
  [[nodiscard]] thread_figures& counters() noexcept { return figures_; }
  [[nodiscard]] const request_server_options& options() const noexcept { return server_.options_; }
  [[nodiscard]] shared_parts& parts() const noexcept { return *server_.parts_; }
  [[nodiscard]] asio::io_context& loop() noexcept { return loop_; }
  [[nodiscard]] bool is_stopping() const noexcept { return is_stopping_; }
  [[nodiscard]] std::span<char> discarded() noexcept { return discarded_; }
  [[nodiscard]] http_reply& handle(const http_request& request);
  [[nodiscard]] http_reply& refuse(const request_refusal& refusal);
  void remove(std::list<std::shared_ptr<connection_state>>::iterator place);

 private:
  struct accepting_socket {
    accepting_socket(asio::io_context& loop, int socket, bool tls)
        : descriptor(loop, socket), delay(loop), has_tls(tls) {}

    readiness descriptor;
    loop_timer delay;  ///< while this process is out of descriptors
    bool has_tls;
  };

  void run();
  void accept_from(accepting_socket& listener);
  [[nodiscard]] bool accept_all(accepting_socket& listener);
  void adopt(unique_fd socket, bool has_tls);
  [[nodiscard]] std::size_t connection_limit() const noexcept;
  [[nodiscard]] bool make_room();
  void wait_for_tick();
  void end_late(steady::time_point now);
  void begin_stop();
  void end_if_idle();
  [[nodiscard]] std::chrono::milliseconds tick() const noexcept;

  const request_server& server_;
  std::unique_ptr<request_handler> handler_;
  http_reply reply_;
  asio::io_context loop_;
  loop_timer timer_;
  std::list<accepting_socket> listeners_;
  std::list<std::shared_ptr<connection_state>> connections_;
  std::optional<asio::executor_work_guard<loop_executor>> work_;
  steady::time_point stop_at_{};
  bool is_stopping_ = false;
  bool is_ticking_ = false;
  std::atomic<std::size_t> load_ = 0;
  thread_figures figures_;
  std::array<char, std::size_t{16} << 10U> discarded_{};  ///< bytes that no connection wants
  std::thread thread_;
};

/// A connection: one operation at a time is under way, so that it needs no other order.
class request_server::connection_state : public std::enable_shared_from_this<connection_state> {
 public:
  connection_state(service_thread& thread, unique_fd socket, bool has_tls);

  void start();
  /// Ends it at its deadline; false: it has time left.
  void expire();
  /// Ends it without an answer.
  void abort() noexcept;
  /// At the server's stop: an idle one ends if no request waits in its socket.
  void end_if_unused();

  [[nodiscard]] peer_stage stage() const noexcept { return stage_; }
  [[nodiscard]] steady::time_point stage_begin() const noexcept { return stage_begin_; }
  [[nodiscard]] steady::time_point deadline() const noexcept { return deadline_; }
  void set_place(std::list<std::shared_ptr<connection_state>>::iterator place) noexcept { place_ = place; }

 private:
  [[nodiscard]] const request_server_limits& limits() const noexcept { return thread_.options().limits; }
  void enter(peer_stage stage, std::chrono::milliseconds limit) noexcept;
  void close() noexcept;

  void shake_hands();
  void read();
  void on_read(const failure_code& wrong, std::size_t bytes);
  void proceed();
  [[nodiscard]] bool read_at_once();
  [[nodiscard]] bool step();
  [[nodiscard]] bool check_header();
  [[nodiscard]] bool is_allowed() const noexcept;
  [[nodiscard]] bool send_continue();

  [[nodiscard]] bool answer();
  [[nodiscard]] bool refuse(request_refusal refusal);
  [[nodiscard]] bool send(http_reply& reply);
  void write_head(const http_reply& reply);
  [[nodiscard]] bool send_parts(std::string_view head, std::string_view body);
  void on_sent(const failure_code& wrong);
  [[nodiscard]] bool finish_part();
  void make_next_part();
  void append_chunk();
  void linger();
  void discard();

  service_thread& thread_;
  stream_socket socket_;
  std::optional<tls_stream> tls_;
  std::list<std::shared_ptr<connection_state>>::iterator place_;
  request_stream reader_;
  peer_stage stage_ = peer_stage::idle;
  steady::time_point stage_begin_{};
  steady::time_point deadline_ = steady::time_point::max();
  std::string head_;
  std::string body_;
  std::string part_;
  std::unique_ptr<reply_source> rest_;
  bool is_expired_ = false;
  bool is_closed_ = false;
  bool is_last_ = false;  ///< the connection ends behind the answer
  bool is_chunked_ = false;
};

request_server::connection_state::connection_state(service_thread& thread, unique_fd socket, bool has_tls)
    : thread_(thread), socket_(thread.loop()), reader_(limits().requests, thread.parts().budget) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  if (bound.ss_family != AF_UNIX) {
    const int yes = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  failure_code wrong;
  socket_.assign(asio::generic::stream_protocol(bound.ss_family, 0), socket.get(), wrong);
  if (wrong) throw boost::system::system_error(wrong);
  static_cast<void>(socket.release());
  socket_.non_blocking(true, wrong);
  if (has_tls) tls_.emplace(socket_, *thread.parts().tls);
}

void request_server::connection_state::enter(peer_stage stage, std::chrono::milliseconds limit) noexcept {
  stage_ = stage;
  stage_begin_ = steady::now();
  deadline_ = stage_begin_ + limit;
}

void request_server::connection_state::start() {
  if (tls_) return shake_hands();
  enter(peer_stage::idle, limits().request);
  if (!read_at_once()) return;
  proceed();
}

void request_server::connection_state::shake_hands() {
  enter(peer_stage::handshake, limits().request);
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](const failure_code& wrong) {
    if (wrong) {
      count(self->thread_.counters().failed_handshakes);
      return self->close();
    }
    self->enter(peer_stage::idle, self->limits().request);
    self->read();
  });
}

void request_server::connection_state::close() noexcept {
  if (std::exchange(is_closed_, true)) return;
  failure_code ignored;
  socket_.close(ignored);
  thread_.remove(place_);
}

void request_server::connection_state::abort() noexcept {
  failure_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);  // what was not sent takes no memory any more
  close();
}

void request_server::connection_state::expire() {
  if (stage_ == peer_stage::idle || stage_ == peer_stage::lingering) return close();
  count(thread_.counters().expired);
  if (stage_ != peer_stage::reading || is_expired_) return abort();
  // The read under way ends, and then the client gets an answer.
  is_expired_ = true;
  deadline_ += limits().linger;
  failure_code ignored;
  socket_.cancel(ignored);
}

void request_server::connection_state::end_if_unused() {
  if (stage_ != peer_stage::idle || reader_.has_bytes()) return;
  failure_code wrong;
  if (socket_.available(wrong) > 0 && !wrong) return;
  close();
}

void request_server::connection_state::read() {
  if (is_closed_) return;
  const auto room = reader_.room();
  if (room.empty()) {
    if (refuse({503, "too many large requests are under way; try again"})) proceed();
    return;
  }
  const asio::mutable_buffer buffer(room.data(), room.size());
  auto done = [self = shared_from_this()](const failure_code& wrong, std::size_t bytes) {
    self->on_read(wrong, bytes);
  };
  if (tls_) {
    tls_->async_read_some(buffer, std::move(done));
  } else {
    socket_.async_read_some(buffer, std::move(done));
  }
}

void request_server::connection_state::on_read(const failure_code& wrong, std::size_t bytes) {
  if (is_closed_) return;
  if (is_expired_ && stage_ == peer_stage::reading) {
    if (refuse({408, "the request did not come to its end in time"})) proceed();
    return;
  }
  if (wrong) return close();
  count(thread_.counters().bytes_in, bytes);
  reader_.add(bytes);
  proceed();
}

/// Reads what is there without waiting; false: nothing was, and the connection waits or is over.
bool request_server::connection_state::read_at_once() {
  if (tls_) {
    read();
    return false;
  }
  const auto room = reader_.room();
  if (room.empty()) return refuse({503, "too many large requests are under way; try again"});
  failure_code wrong;
  const std::size_t bytes = socket_.read_some(asio::mutable_buffer(room.data(), room.size()), wrong);
  if (wrong == asio::error::would_block || wrong == asio::error::try_again) {
    read();
    return false;
  }
  if (wrong) {
    close();
    return false;
  }
  count(thread_.counters().bytes_in, bytes);
  reader_.add(bytes);
  return true;
}

/// Answers the requests that are there.
void request_server::connection_state::proceed() {
  for (int i = 0; i < requests_in_a_row; ++i) {
    if (is_closed_ || !step()) return;
  }
  asio::post(thread_.loop(), [self = shared_from_this()] { self->proceed(); });
}

/// One step with the bytes that are there; false: it waits for an operation.
bool request_server::connection_state::step() {
  if (stage_ == peer_stage::lingering) return false;
  if (stage_ == peer_stage::idle && reader_.has_bytes()) enter(peer_stage::reading, limits().request);
  switch (reader_.advance()) {
    case stream_state::incomplete:
      if (thread_.is_stopping() && stage_ == peer_stage::idle) {
        close();
        return false;
      }
      return read_at_once();
    case stream_state::header: return check_header();
    case stream_state::complete: return answer();
    case stream_state::refused: break;
  }
  return refuse(reader_.refusal());
}

bool request_server::connection_state::is_allowed() const noexcept {
  const request_server_options& options = thread_.options();
  return options.token.empty() || is_equal_secret(bearer_token(reader_.header("Authorization")), options.token) ||
         std::ranges::find(options.open_paths, reader_.path()) != options.open_paths.end();
}

/// Before the body is read.
bool request_server::connection_state::check_header() {
  if (!is_allowed()) return refuse({401, "this needs the header `Authorization: Bearer` with the token"});
  return !reader_.awaits_continue() || send_continue();
}

bool request_server::connection_state::send_continue() {
  static constexpr std::string_view text = "HTTP/1.1 100 Continue\r\n\r\n";
  const asio::const_buffer buffer(text.data(), text.size());
  auto done = [self = shared_from_this()](const failure_code& wrong, std::size_t) {
    if (self->is_closed_) return;
    if (wrong && !self->is_expired_) return self->close();
    self->proceed();
  };
  if (tls_) {
    asio::async_write(*tls_, buffer, std::move(done));
  } else {
    asio::async_write(socket_, buffer, std::move(done));
  }
  return false;
}

bool request_server::connection_state::answer() {
  if (!is_allowed()) return refuse({401, "this needs the header `Authorization: Bearer` with the token"});
  is_last_ = !reader_.keeps_alive() || thread_.is_stopping();
  return send(thread_.handle(reader_.request()));
}

bool request_server::connection_state::refuse(request_refusal refusal) {
  is_last_ = true;
  return send(thread_.refuse(refusal));
}

void request_server::connection_state::write_head(const http_reply& reply) {
  head_ = "HTTP/1.1 ";
  append_number(head_, static_cast<std::size_t>(reply.status));
  head_ += ' ';
  head_ += status_text(reply.status);
  head_ += "\r\nContent-Type: ";
  head_ += reply.content_type;
  if (is_chunked_) {
    head_ += "\r\nTransfer-Encoding: chunked";
  } else if (!rest_) {
    head_ += "\r\nContent-Length: ";
    append_number(head_, body_.size());
  }
  if (is_last_) {
    head_ += "\r\nConnection: close";
  } else if (reader_.is_old_version()) {
    head_ += "\r\nConnection: keep-alive";
  }
  if (!reply.allow.empty()) {
    head_ += "\r\nAllow: ";
    head_ += reply.allow;
  }
  if (reply.status == 401) head_ += "\r\nWWW-Authenticate: Bearer";
  head_ += "\r\n\r\n";
}

/// Sends an answer; true: it is sent, and the connection goes on.
bool request_server::connection_state::send(http_reply& reply) {
  count(thread_.counters().by_class[std::min<std::size_t>(static_cast<std::size_t>(reply.status) / 100, 5)]);
  body_.swap(reply.body);
  rest_ = std::move(reply.rest);
  if (rest_ && reader_.is_old_version()) is_last_ = true;  // its end is the connection's
  is_chunked_ = rest_ != nullptr && !reader_.is_old_version();
  write_head(reply);
  if (reader_.is_head()) {
    body_.clear();
    rest_.reset();
  }
  if (rest_ && is_chunked_) {
    part_.swap(body_);
    body_.clear();
    if (!part_.empty()) append_chunk();
  }
  return send_parts(head_, body_);
}

/// The next chunk of `part_` in `body_`.
void request_server::connection_state::append_chunk() {
  std::array<char, 24> digits;
  body_.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), part_.size(), 16).ptr);
  body_ += "\r\n";
  body_ += part_;
  body_ += "\r\n";
  part_.clear();
}

bool request_server::connection_state::send_parts(std::string_view head, std::string_view body) {
  const std::size_t bytes = head.size() + body.size();
  enter(peer_stage::writing, limits().answer * static_cast<int>(1 + bytes / answer_piece));
  count(thread_.counters().bytes_out, bytes);
  std::size_t sent = 0;
  if (!tls_) {
    const std::array buffers{asio::const_buffer(head.data(), head.size()),
                             asio::const_buffer(body.data(), body.size())};
    failure_code wrong;
    sent = socket_.write_some(buffers, wrong);
    if (wrong && wrong != asio::error::would_block && wrong != asio::error::try_again) {
      close();
      return false;
    }
    if (sent == bytes) return finish_part();
  }
  const std::size_t of_head = std::min(sent, head.size());
  head.remove_prefix(of_head);
  body.remove_prefix(sent - of_head);
  const std::array buffers{asio::const_buffer(head.data(), head.size()), asio::const_buffer(body.data(), body.size())};
  auto done = [self = shared_from_this()](const failure_code& wrong, std::size_t) { self->on_sent(wrong); };
  if (tls_) {
    asio::async_write(*tls_, buffers, std::move(done));
  } else {
    asio::async_write(socket_, buffers, std::move(done));
  }
  return false;
}

void request_server::connection_state::on_sent(const failure_code& wrong) {
  if (is_closed_) return;
  if (wrong) return close();
  if (finish_part()) proceed();
}

/// After a part of an answer; true: the answer is over and the connection goes on.
bool request_server::connection_state::finish_part() {
  if (rest_) {  // other connections get their turn between parts
    asio::post(thread_.loop(), [self = shared_from_this()] { self->make_next_part(); });
    return false;
  }
  if (body_.capacity() > kept_answer) std::string().swap(body_);
  if (part_.capacity() > kept_answer) std::string().swap(part_);
  if (is_last_) {
    linger();
    return false;
  }
  reader_.finish();
  enter(peer_stage::idle, limits().idle);
  return true;
}

void request_server::connection_state::make_next_part() {
  if (is_closed_) return;
  body_.clear();
  bool has_more = false;
  try {
    has_more = rest_->next(is_chunked_ ? part_ : body_);
  } catch (...) {
    return abort();
  }
  if (is_chunked_) {
    if (!part_.empty()) append_chunk();
    if (!has_more) body_ += "0\r\n\r\n";
  }
  if (!has_more) rest_.reset();
  if (send_parts({}, body_)) proceed();
}

/// Closes its own direction, and reads what the client still sends: a socket that is closed before is reset, and the
/// answer lost.
void request_server::connection_state::linger() {
  enter(peer_stage::lingering, limits().linger);
  const auto end = [self = shared_from_this()](const failure_code&) {
    if (self->is_closed_) return;
    failure_code ignored;
    self->socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    self->discard();
  };
  if (tls_) {
    tls_->async_shutdown(end);
  } else {
    end({});
  }
}

void request_server::connection_state::discard() {
  const auto nothing = thread_.discarded();
  socket_.async_read_some(asio::mutable_buffer(nothing.data(), nothing.size()),
                          [self = shared_from_this()](const failure_code& wrong, std::size_t) {
                            if (self->is_closed_) return;
                            if (wrong) return self->close();
                            self->discard();
                          });
}

request_server::service_thread::~service_thread() {
  if (!thread_.joinable()) return;
  stop();
  join();
}

result<void> request_server::service_thread::listen() {
  for (const listening_socket_entry& each : parts().listeners) {
    auto own = each.socket.duplicate();
    if (!own) return std::unexpected(own.error());
    listeners_.emplace_back(loop_, own->get(), each.has_tls);
    static_cast<void>(own->release());
  }
  return {};
}

void request_server::service_thread::start() {
  work_.emplace(loop_.get_executor());
  thread_ = std::thread([this] { run(); });
}

void request_server::service_thread::stop() {
  asio::post(loop_, [this] { begin_stop(); });
}

void request_server::service_thread::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

void request_server::service_thread::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-http");
  for (accepting_socket& each : listeners_) accept_from(each);
  while (true) {
    try {
      loop_.run();
      return;
    } catch (const std::exception&) {
      continue;  // out of memory: the connection that met it ends at its deadline
    }
  }
}

void request_server::service_thread::accept_from(accepting_socket& listener) {
  listener.descriptor.async_wait(readiness::wait_read, [this, &listener](const failure_code& wrong) {
    if (wrong || is_stopping_) return;
    if (accept_all(listener)) return accept_from(listener);
    listener.delay.expires_after(accept_delay);
    listener.delay.async_wait([this, &listener](const failure_code& cancelled) {
      if (!cancelled && !is_stopping_) accept_from(listener);
    });
  });
}

/// False if this process has no more descriptors or memory for sockets.
bool request_server::service_thread::accept_all(accepting_socket& listener) {
  while (true) {
    unique_fd socket(::accept4(listener.descriptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    count(figures_.accepted);
    service_thread* chosen = this;
    for (const auto& each : server_.threads_) {
      if (!is_stopping_ && each->load() < chosen->load()) chosen = each.get();
    }
    chosen->hand_over(std::move(socket), listener.has_tls, *this);
  }
}

void request_server::service_thread::hand_over(unique_fd socket, bool has_tls, const service_thread& giver) {
  load_.fetch_add(1, std::memory_order_relaxed);
  if (&giver == this) return adopt(std::move(socket), has_tls);
  asio::post(loop_, [this, has_tls, owned = std::move(socket)]() mutable { adopt(std::move(owned), has_tls); });
}

std::size_t request_server::service_thread::connection_limit() const noexcept {
  return std::max<std::size_t>(options().limits.connections / std::max<std::size_t>(options().threads, 1), 1);
}

void request_server::service_thread::adopt(unique_fd socket, bool has_tls) {
  if (connections_.size() >= connection_limit() && !make_room()) {
    count(figures_.refused);
    load_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  std::shared_ptr<connection_state> made;
  try {
    made = std::make_shared<connection_state>(*this, std::move(socket), has_tls);
    connections_.push_back(made);
  } catch (const std::exception&) {
    count(figures_.refused);
    load_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  made->set_place(std::prev(connections_.end()));
  wait_for_tick();
  made->start();
  if (is_stopping_) made->end_if_unused();
}

/// Closes the connection that is idle for the longest time, or else the one whose request is the oldest that is not
/// complete. False: all of them get their answers.
bool request_server::service_thread::make_room() {
  const auto rank = [](const std::shared_ptr<connection_state>& peer) {
    switch (peer->stage()) {
      case peer_stage::idle:
      case peer_stage::lingering: return 0;
      case peer_stage::handshake:
      case peer_stage::reading: return 1;
      case peer_stage::writing: return 2;
    }
    return 2;
  };
  const auto chosen = std::ranges::min_element(connections_, [&](const auto& one, const auto& two) {
    return rank(one) != rank(two) ? rank(one) < rank(two) : one->stage_begin() < two->stage_begin();
  });
  if (chosen == connections_.end() || rank(*chosen) == 2) return false;
  count(figures_.displaced);
  std::shared_ptr<connection_state>(*chosen)->abort();
  return true;
}

std::chrono::milliseconds request_server::service_thread::tick() const noexcept {
  const request_server_limits& limits = options().limits;
  const auto shortest = std::min({limits.request, limits.answer, limits.idle, limits.linger, limits.stop});
  return std::clamp(shortest / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
}

void request_server::service_thread::wait_for_tick() {
  if (is_ticking_ || connections_.empty()) return;
  is_ticking_ = true;
  timer_.expires_after(tick());
  timer_.async_wait([this](const failure_code& wrong) {
    is_ticking_ = false;
    if (wrong) return;
    end_late(steady::now());
    wait_for_tick();
  });
}

void request_server::service_thread::end_late(steady::time_point now) {
  const bool is_over = is_stopping_ && now >= stop_at_;
  for (auto each = connections_.begin(); each != connections_.end();) {
    const std::shared_ptr<connection_state> peer = *each++;  // it may leave the list
    if (is_over) {
      peer->abort();
    } else if (peer->deadline() <= now) {
      peer->expire();
    }
  }
}

void request_server::service_thread::begin_stop() {
  if (std::exchange(is_stopping_, true)) return;
  stop_at_ = steady::now() + options().limits.stop;
  for (accepting_socket& each : listeners_) static_cast<void>(accept_all(each));
  for (auto each = connections_.begin(); each != connections_.end();) {
    const std::shared_ptr<connection_state> peer = *each++;
    peer->end_if_unused();
  }
  listeners_.clear();
  end_if_idle();
}

void request_server::service_thread::end_if_idle() {
  if (!is_stopping_ || !connections_.empty()) return;
  timer_.cancel();
  work_.reset();
}

void request_server::service_thread::remove(std::list<std::shared_ptr<connection_state>>::iterator place) {
  connections_.erase(place);
  load_.fetch_sub(1, std::memory_order_relaxed);
  end_if_idle();
}

http_reply& request_server::service_thread::handle(const http_request& request) {
  reply_.clear();
  try {
    handler_->handle(request, reply_);
  } catch (const std::exception& failure) {
    reply_.fail(500, failure.what());
  } catch (...) {
    reply_.fail(500, "an unknown fault");
  }
  return reply_;
}

http_reply& request_server::service_thread::refuse(const request_refusal& refusal) {
  reply_.fail(refusal.status, refusal.text);
  return reply_;
}

request_server::request_server(request_server_options options, std::unique_ptr<shared_parts> parts)
    : options_(std::move(options)), parts_(std::move(parts)) {}

request_server::~request_server() {
  stop();
}

result<std::unique_ptr<request_server>> request_server::bind(request_server_options options) {
  if (options.addresses.empty() && options.sockets.empty()) {
    return fail(error_code::invalid_argument, "a server needs an address or a socket to listen at");
  }
  if (options.threads == 0) return fail(error_code::invalid_argument, "a server needs a thread at least");
  if (options.tls.certificate.empty() != options.tls.key.empty() ||
      (options.tls.certificate.empty() && !options.tls.client_ca.empty())) {
    return fail(error_code::invalid_argument, "TLS needs a certificate and its key; only both are right");
  }
  std::unique_ptr<asio::ssl::context> context;
  if (!options.tls.certificate.empty()) {
    auto opened = open_tls(options.tls);
    if (!opened) return std::unexpected(opened.error());
    context = std::move(*opened);
  }
  const bool has_tls = context != nullptr;
  auto parts = std::make_unique<shared_parts>(options, std::move(context));
  for (endpoint& each : options.addresses) {
    auto socket = listen_tcp(each);
    if (!socket) return std::unexpected(socket.error());
    parts->listeners.push_back({std::move(*socket), has_tls});
  }
  for (const unix_address& each : options.sockets) {
    auto socket = listen_unix(each);
    if (!socket) return std::unexpected(socket.error());
    parts->listeners.push_back({std::move(*socket), false});
    parts->files.emplace_back(each.path);
  }
  std::unique_ptr<request_server> server(new request_server(std::move(options), std::move(parts)));
  for (std::size_t i = 0; i < server->options_.threads; ++i) {
    server->threads_.push_back(std::make_unique<service_thread>(*server));
    if (const auto listening = server->threads_.back()->listen(); !listening) return std::unexpected(listening.error());
  }
  return server;
}

void request_server::serve(const handler_factory& make_handler) {
  for (const auto& each : threads_) each->set_handler(make_handler());
  for (const auto& each : threads_) each->start();
}

request_server_figures request_server::figures() const noexcept {
  request_server_figures sum;
  const auto value = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  for (const auto& each : threads_) {
    const thread_figures& own = each->figures();
    sum.connections += each->load();
    sum.accepted += value(own.accepted);
    sum.refused += value(own.refused);
    sum.displaced += value(own.displaced);
    sum.expired += value(own.expired);
    sum.failed_handshakes += value(own.failed_handshakes);
    sum.succeeded += value(own.by_class[2]) + value(own.by_class[3]);
    sum.client_errors += value(own.by_class[4]);
    sum.server_errors += value(own.by_class[5]);
    sum.bytes_in += value(own.bytes_in);
    sum.bytes_out += value(own.bytes_out);
  }
  return sum;
}

void request_server::stop() noexcept {
  parts_->files.clear();  // new clients are turned to whatever takes the path next
  for (const auto& each : threads_) each->stop();
  for (const auto& each : threads_) each->join();
  parts_->listeners.clear();
}

}  // namespace cenote::http
