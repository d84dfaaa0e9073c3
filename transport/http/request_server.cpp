#include "transport/http/request_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
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
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "transport/http/bearer_token.hpp"
#include "transport/http/reply_text.hpp"
#include "transport/tls/contexts.hpp"

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
constexpr auto part_pause = std::chrono::milliseconds(5);      ///< until a part that was not there is asked for again
constexpr int requests_in_a_row = 32;                          ///< of one connection before others get their turn
constexpr std::size_t answer_piece = std::size_t{4} << 20U;    ///< bytes for which the answer's limit is meant

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
  waiting,    ///< for the event of an answer
  writing,    ///< an answer
  lingering,  ///< the last answer is sent; the client may take it
};

/// The stage of a connection, and the time that it has for it.
struct stage_time {
  peer_stage stage = peer_stage::idle;
  steady::time_point begin{};
  steady::time_point deadline = steady::time_point::max();

  void enter(peer_stage next, std::chrono::milliseconds limit) noexcept {
    stage = next;
    begin = steady::now();
    deadline = begin + limit;
  }
};

/// The time between two looks at deadlines.
std::chrono::milliseconds tick_of(const request_server_limits& limits) noexcept {
  const auto shortest = std::min({limits.request, limits.answer, limits.idle, limits.linger, limits.stop});
  return std::clamp(shortest / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
}

/// Whether the request's path is open, or it has the token.
bool is_allowed(const request_server_options& options, const request_stream& request) noexcept {
  return options.token.empty() || has_bearer_token(request.header("Authorization"), options.token) ||
         std::ranges::find(options.open_paths, request.path()) != options.open_paths.end();
}

asio::const_buffer buffer_of(std::string_view text) noexcept {
  return {text.data(), text.size()};
}

result<std::unique_ptr<asio::ssl::context>> open_tls(const tls_files& files) {
  auto context = tls::make_context(asio::ssl::context::tls_server);
  ::SSL_CTX_set_options(context->native_handle(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  ::SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  if (auto loaded = tls::load_identity(*context, files.certificate, files.key); !loaded) {
    return std::unexpected(loaded.error());
  }
  if (files.client_ca.empty()) return context;
  constexpr std::string_view use = "the certificates that sign clients' (PEM)";
  if (auto loaded = tls::load_authority(*context, files.client_ca, use); !loaded) {
    return std::unexpected(loaded.error());
  }
  context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  ::SSL_CTX_set_client_CA_list(context->native_handle(), ::SSL_load_client_CA_file(files.client_ca.c_str()));
  constexpr std::array<unsigned char, 6> name{'c', 'e', 'n', 'o', 't', 'e'};
  ::SSL_CTX_set_session_id_context(context->native_handle(), name.data(), name.size());
  return context;
}

/// The socket of a connection, through TLS or not. One asynchronous operation at a time.
class peer_stream {
 public:
  /// Throws boost::system::system_error.
  peer_stream(asio::io_context& loop, unique_fd socket, asio::ssl::context* context) : socket_(loop) {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    const int yes = 1;
    if (bound.ss_family != AF_UNIX) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    socket_.assign(asio::generic::stream_protocol(bound.ss_family, 0), socket.get());
    static_cast<void>(socket.release());
    socket_.non_blocking(true);
    if (context != nullptr) tls_.emplace(socket_, *context);
  }

  [[nodiscard]] bool has_tls() const noexcept { return tls_.has_value(); }
  /// The client's address, without its port; empty if it has none.
  [[nodiscard]] std::string peer_address();
  /// The common name of the client's certificate, behind the handshake; empty if there is not exactly one.
  [[nodiscard]] std::string certificate_name();
  /// Bytes that wait in the socket.
  [[nodiscard]] std::size_t available() const {
    failure_code wrong;
    const std::size_t bytes = socket_.available(wrong);
    return wrong ? 0 : bytes;
  }

  template <class Done>
  void shake_hands(Done&& done) {
    tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Done>(done));
  }
  template <class Done>
  void read(std::span<std::byte> room, Done&& done) {
    const asio::mutable_buffer buffer(room.data(), room.size());
    if (tls_) return static_cast<void>(tls_->async_read_some(buffer, std::forward<Done>(done)));
    socket_.async_read_some(buffer, std::forward<Done>(done));
  }
  template <class Buffers, class Done>
  void write(const Buffers& buffers, Done&& done) {
    if (tls_) return static_cast<void>(asio::async_write(*tls_, buffers, std::forward<Done>(done)));
    asio::async_write(socket_, buffers, std::forward<Done>(done));
  }
  /// Ends its own direction.
  template <class Done>
  void shut_down(Done&& done) {
    if (tls_) return static_cast<void>(tls_->async_shutdown(std::forward<Done>(done)));
    done(failure_code());
  }
  /// Reads bytes that are not wanted, around TLS, up to the end. `done` keeps this alive.
  template <class Done>
  void drain(std::span<char> scrap, Done done) {
    failure_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    socket_.async_read_some(asio::mutable_buffer(scrap.data(), scrap.size()),
                            [this, scrap, done = std::move(done)](const failure_code& wrong, std::size_t) {
                              if (wrong) return done();
                              drain(scrap, done);
                            });
  }

  // Without TLS, at once or not at all: the bytes, 0 and no error if it would wait.
  [[nodiscard]] std::size_t read_now(std::span<std::byte> room, failure_code& wrong) {
    const std::size_t bytes = socket_.read_some(asio::mutable_buffer(room.data(), room.size()), wrong);
    if (wrong == asio::error::would_block || wrong == asio::error::try_again) wrong.clear();
    return bytes;
  }
  template <class Buffers>
  [[nodiscard]] std::size_t write_now(const Buffers& buffers, failure_code& wrong) {
    const std::size_t bytes = socket_.write_some(buffers, wrong);
    if (wrong == asio::error::would_block || wrong == asio::error::try_again) wrong.clear();
    return bytes;
  }

  void cancel() noexcept {
    failure_code ignored;
    socket_.cancel(ignored);
  }
  void close() noexcept {
    failure_code ignored;
    socket_.close(ignored);
  }
  /// Bytes that were not sent take no memory any more.
  void reset_at_close() noexcept {
    failure_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }

 private:
  stream_socket socket_;
  std::optional<tls_stream> tls_;
};

std::string peer_stream::peer_address() {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(socket_.native_handle(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* number = nullptr;
  if (peer.ss_family == AF_INET) number = &reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
  if (peer.ss_family == AF_INET6) number = &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  if (number == nullptr || ::inet_ntop(peer.ss_family, number, text.data(), text.size()) == nullptr) return {};
  return text.data();
}

std::string peer_stream::certificate_name() {
  if (!tls_) return {};
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(::SSL_get1_peer_certificate(tls_->native_handle()),
                                                                  ::X509_free);
  if (certificate == nullptr || ::SSL_get_verify_result(tls_->native_handle()) != X509_V_OK) return {};
  const X509_NAME* const subject = ::X509_get_subject_name(certificate.get());
  const int place = ::X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (place < 0 || ::X509_NAME_get_index_by_NID(subject, NID_commonName, place) >= 0) return {};
  unsigned char* bytes = nullptr;
  const int size = ::ASN1_STRING_to_UTF8(&bytes, ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, place)));
  if (size < 0) return {};
  std::string name(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return name;
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
  /// Written on its own thread.
  [[nodiscard]] thread_figures& figures() noexcept { return figures_; }

  // Of its connections, on its own thread.
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
  [[nodiscard]] bool make_room();
  void wait_for_tick();
  void end_late(steady::time_point now);
  void begin_stop();
  void end_if_idle();

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
  std::array<char, std::size_t{16} << 10U> discarded_{};  ///< bytes that are not wanted
  std::thread thread_;
};

/// A connection: one operation at a time is under way, so that it needs no other order.
class request_server::connection_state : public std::enable_shared_from_this<connection_state> {
 public:
  connection_state(service_thread& thread, unique_fd socket, bool has_tls);

  void start();
  /// Ends it at its deadline.
  void expire();
  /// Ends it without an answer.
  void abort() noexcept;
  /// At the server's stop: an idle one ends if no request waits in its socket.
  void end_if_unused();

  [[nodiscard]] const stage_time& time() const noexcept { return time_; }
  void set_place(std::list<std::shared_ptr<connection_state>>::iterator place) noexcept { place_ = place; }

 private:
  [[nodiscard]] const request_server_limits& limits() const noexcept { return thread_.options().limits; }
  void close() noexcept;

  void read();
  void on_read(const failure_code& wrong, std::size_t bytes);
  void proceed();
  [[nodiscard]] bool read_at_once();
  [[nodiscard]] bool step();
  [[nodiscard]] bool check_header();

  [[nodiscard]] bool handle(reply_event* event);
  void resume();
  [[nodiscard]] bool refuse(const request_refusal& refusal);
  [[nodiscard]] bool send(http_reply& reply);
  [[nodiscard]] bool send_parts(std::string_view head, std::string_view body);
  [[nodiscard]] bool finish_part();
  void make_next_part();
  void linger();

  service_thread& thread_;
  peer_stream stream_;
  std::list<std::shared_ptr<connection_state>>::iterator place_;
  const std::string peer_address_;
  std::string certificate_name_;
  request_stream reader_;
  stage_time time_;
  reply_text text_;
  std::shared_ptr<reply_event> event_;
  std::optional<loop_timer> part_delay_;
  bool is_expired_ = false;
  bool is_closed_ = false;
  bool is_last_ = false;  ///< the connection ends behind the answer
};

request_server::connection_state::connection_state(service_thread& thread, unique_fd socket, bool has_tls)
    : thread_(thread),
      stream_(thread.loop(), std::move(socket), has_tls ? thread.parts().tls.get() : nullptr),
      peer_address_(stream_.peer_address()),
      reader_(limits().requests, thread.parts().budget) {}

void request_server::connection_state::start() {
  time_.enter(stream_.has_tls() ? peer_stage::handshake : peer_stage::idle, limits().request);
  if (!stream_.has_tls()) return proceed();
  stream_.shake_hands([self = shared_from_this()](const failure_code& wrong) {
    if (wrong) {
      count(self->thread_.figures().failed_handshakes);
      return self->close();
    }
    self->certificate_name_ = self->stream_.certificate_name();
    self->time_.enter(peer_stage::idle, self->limits().request);
    self->read();
  });
}

void request_server::connection_state::close() noexcept {
  if (std::exchange(is_closed_, true)) return;
  stream_.close();
  if (event_) event_->disarm();
  if (part_delay_) part_delay_->cancel();
  thread_.remove(place_);
}

void request_server::connection_state::abort() noexcept {
  stream_.reset_at_close();
  close();
}

void request_server::connection_state::expire() {
  if (time_.stage == peer_stage::idle || time_.stage == peer_stage::lingering) return close();
  count(thread_.figures().expired);
  if (time_.stage == peer_stage::waiting) {
    event_->disarm();
    event_.reset();
    if (refuse({503, "the answer did not come in time; try again"})) proceed();
    return;
  }
  if (time_.stage != peer_stage::reading || is_expired_) return abort();
  // The read under way ends, and then the client gets an answer.
  is_expired_ = true;
  time_.deadline += limits().linger;
  stream_.cancel();
}

void request_server::connection_state::end_if_unused() {
  if (time_.stage == peer_stage::idle && !reader_.has_bytes() && stream_.available() == 0) close();
}

void request_server::connection_state::read() {
  if (is_closed_) return;
  const auto room = reader_.room();
  if (room.empty()) {
    if (refuse({503, "too many large requests are under way; try again"})) proceed();
    return;
  }
  stream_.read(
      room, [self = shared_from_this()](const failure_code& wrong, std::size_t bytes) { self->on_read(wrong, bytes); });
}

void request_server::connection_state::on_read(const failure_code& wrong, std::size_t bytes) {
  if (is_closed_) return;
  if (is_expired_ && time_.stage == peer_stage::reading) {
    if (refuse({408, "the request did not come to its end in time"})) proceed();
    return;
  }
  if (wrong) return close();
  count(thread_.figures().bytes_in, bytes);
  reader_.add(bytes);
  proceed();
}

/// Reads what is there without waiting; false: nothing was, and the connection waits or is over.
bool request_server::connection_state::read_at_once() {
  if (stream_.has_tls()) {
    read();
    return false;
  }
  const auto room = reader_.room();
  if (room.empty()) return refuse({503, "too many large requests are under way; try again"});
  failure_code wrong;
  const std::size_t bytes = stream_.read_now(room, wrong);
  if (wrong) {
    close();
    return false;
  }
  if (bytes == 0) {
    read();
    return false;
  }
  count(thread_.figures().bytes_in, bytes);
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
  if (time_.stage == peer_stage::lingering) return false;
  if (time_.stage == peer_stage::idle && reader_.has_bytes()) time_.enter(peer_stage::reading, limits().request);
  switch (reader_.advance()) {
    case stream_state::incomplete:
      if (thread_.is_stopping()) end_if_unused();
      return !is_closed_ && read_at_once();
    case stream_state::header: return check_header();
    case stream_state::refused: return refuse(reader_.refusal());
    case stream_state::complete: break;
  }
  if (!is_allowed(thread_.options(), reader_)) return refuse({401, std::string(missing_token)});
  is_last_ = !reader_.keeps_alive() || thread_.is_stopping();
  return handle(nullptr);
}

/// Before the body is read.
bool request_server::connection_state::check_header() {
  if (!is_allowed(thread_.options(), reader_)) return refuse({401, std::string(missing_token)});
  if (!reader_.awaits_continue()) return true;
  static constexpr std::string_view consent = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.write(buffer_of(consent), [self = shared_from_this()](const failure_code& wrong, std::size_t) {
    if (self->is_closed_) return;
    if (wrong && !self->is_expired_) return self->close();
    self->proceed();
  });
  return false;
}

/// Has the request handled; false: the answer waits, or is under way.
bool request_server::connection_state::handle(reply_event* event) {
  http_request request = reader_.request();
  request.peer_address = peer_address_;
  request.certificate_name = certificate_name_;
  request.event = event;
  http_reply& reply = thread_.handle(request);
  if (!reply.event) return send(reply);
  event_ = std::move(reply.event);
  time_.enter(peer_stage::waiting, limits().answer);
  // As long as the connection is open its loop is there; afterwards the event is disarmed.
  event_->arm([this] { asio::post(thread_.loop(), [self = shared_from_this()] { self->resume(); }); });
  return false;
}

void request_server::connection_state::resume() {
  if (is_closed_ || time_.stage != peer_stage::waiting || !event_) return;
  const auto event = std::move(event_);
  is_last_ = is_last_ || thread_.is_stopping();
  if (handle(event.get())) proceed();
}

bool request_server::connection_state::refuse(const request_refusal& refusal) {
  is_last_ = true;
  return send(thread_.refuse(refusal));
}

/// Sends an answer; true: it is sent, and the connection goes on.
bool request_server::connection_state::send(http_reply& reply) {
  count(thread_.figures().by_class[std::min<std::size_t>(static_cast<std::size_t>(reply.status) / 100, 5)]);
  const bool is_old = reader_.is_old_version();
  is_last_ = is_last_ || (is_old && reply.rest != nullptr);  // its end is the connection's
  text_.set(reply, {.is_last = is_last_, .is_old_version = is_old, .is_head = reader_.is_head()});
  return send_parts(text_.head(), text_.body());
}

bool request_server::connection_state::send_parts(std::string_view head, std::string_view body) {
  const std::size_t bytes = head.size() + body.size();
  time_.enter(peer_stage::writing, limits().answer * static_cast<int>(1 + bytes / answer_piece));
  count(thread_.figures().bytes_out, bytes);
  std::size_t sent = 0;
  if (!stream_.has_tls()) {
    failure_code wrong;
    sent = stream_.write_now(std::array{buffer_of(head), buffer_of(body)}, wrong);
    if (wrong) {
      close();
      return false;
    }
    if (sent == bytes) return finish_part();
  }
  const std::size_t head_sent = std::min(sent, head.size());
  head.remove_prefix(head_sent);
  body.remove_prefix(sent - head_sent);
  stream_.write(std::array{buffer_of(head), buffer_of(body)},
                [self = shared_from_this()](const failure_code& wrong, std::size_t) {
                  if (self->is_closed_) return;
                  if (wrong) return self->close();
                  if (self->finish_part()) self->proceed();
                });
  return false;
}

/// After a part of an answer; true: the answer is over and the connection goes on.
bool request_server::connection_state::finish_part() {
  if (text_.has_rest()) {  // other connections get their turn between parts
    asio::post(thread_.loop(), [self = shared_from_this()] { self->make_next_part(); });
    return false;
  }
  text_.trim();
  if (is_last_) {
    linger();
    return false;
  }
  reader_.finish();
  is_expired_ = false;
  time_.enter(peer_stage::idle, limits().idle);
  return true;
}

void request_server::connection_state::make_next_part() {
  if (is_closed_) return;
  bool is_there = false;
  try {
    is_there = text_.make_next_part();
  } catch (...) {
    return abort();
  }
  if (is_there) {
    if (send_parts({}, text_.body())) proceed();
    return;
  }
  // The deadline of the part before holds.
  if (!part_delay_) part_delay_.emplace(thread_.loop());
  part_delay_->expires_after(part_pause);
  part_delay_->async_wait([self = shared_from_this()](const failure_code& cancelled) {
    if (!cancelled) self->make_next_part();
  });
}

/// Closes its own direction, and reads what the client still sends: a socket that is closed before is reset, and the
/// answer lost.
void request_server::connection_state::linger() {
  time_.enter(peer_stage::lingering, limits().linger);
  stream_.shut_down([self = shared_from_this()](const failure_code&) {
    if (self->is_closed_) return;
    self->stream_.drain(self->thread_.discarded(), [self] { self->close(); });
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

void request_server::service_thread::adopt(unique_fd socket, bool has_tls) {
  const std::size_t share = std::max<std::size_t>(options().limits.connections / options().threads, 1);
  if (connections_.size() >= share && !make_room()) {
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
    switch (peer->time().stage) {
      case peer_stage::idle:
      case peer_stage::lingering: return 0;
      case peer_stage::handshake:
      case peer_stage::reading: return 1;
      case peer_stage::waiting:
      case peer_stage::writing: return 2;
    }
    return 2;
  };
  const auto chosen = std::ranges::min_element(connections_, [&](const auto& one, const auto& two) {
    return rank(one) != rank(two) ? rank(one) < rank(two) : one->time().begin < two->time().begin;
  });
  if (chosen == connections_.end() || rank(*chosen) == 2) return false;
  count(figures_.displaced);
  std::shared_ptr<connection_state>(*chosen)->abort();
  return true;
}

void request_server::service_thread::wait_for_tick() {
  if (is_ticking_ || connections_.empty()) return;
  is_ticking_ = true;
  timer_.expires_after(tick_of(options().limits));
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
    } else if (peer->time().deadline <= now) {
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
