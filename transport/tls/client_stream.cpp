// OpenSSL over a BIO that writes into a buffer and reads from a socket.
#include "transport/tls/client_stream.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/endpoint.hpp"
#include "core/socket_address.hpp"
#include "transport/tls/contexts.hpp"

namespace cenote::tls {

namespace {

constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t record_room = SSL3_RT_MAX_PLAIN_LENGTH + SSL3_RT_MAX_ENCRYPTED_OVERHEAD + SSL3_RT_HEADER_LENGTH;
constexpr std::size_t outgoing_bytes = 16 * record_room;         // of one system call
constexpr std::size_t incoming_bytes = std::size_t{128} << 10U;  // of one system call
// Answers to what the other side asks for while it takes nothing: more than that is an attack.
constexpr std::size_t most_outgoing_bytes = 2 * outgoing_bytes;

template <auto Free>
struct free_with {
  void operator()(auto* object) const noexcept { Free(object); }
};
using session_handle = std::unique_ptr<SSL, free_with<::SSL_free>>;
using method_handle = std::unique_ptr<BIO_METHOD, free_with<::BIO_meth_free>>;

/// The socket as OpenSSL sees it: writes end in a buffer, which has one system call for many records.
struct wire {
  int socket = -1;
  bool may_receive = true;
  bool is_at_end = false;
  int failure = 0;  ///< of the socket, an errno
  std::vector<std::byte> outgoing{};
  std::size_t sent = 0;  ///< bytes of it

  [[nodiscard]] std::size_t room() const noexcept {
    return outgoing.size() < outgoing_bytes ? outgoing_bytes - outgoing.size() : 0;
  }
};

wire& wire_behind(BIO* bio) noexcept {
  return *static_cast<wire*>(::BIO_get_data(bio));
}

int write_wire(BIO* bio, const char* data, std::size_t size, std::size_t* written) noexcept {
  wire& line = wire_behind(bio);
  ::BIO_clear_retry_flags(bio);
  if (line.outgoing.size() + size > most_outgoing_bytes) return 0;
  try {
    const auto* const bytes = reinterpret_cast<const std::byte*>(data);
    line.outgoing.insert(line.outgoing.end(), bytes, bytes + size);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  *written = size;
  return 1;
}

int read_wire(BIO* bio, char* room, std::size_t size, std::size_t* bytes) noexcept {
  wire& line = wire_behind(bio);
  ::BIO_clear_retry_flags(bio);
  ssize_t n = -1;
  errno = EAGAIN;
  while (line.may_receive) {
    n = ::recv(line.socket, room, size, MSG_DONTWAIT);
    if (n >= 0 || errno != EINTR) break;
  }
  if (n > 0) {
    *bytes = static_cast<std::size_t>(n);
    return 1;
  }
  if (n == 0) {
    line.is_at_end = true;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    ::BIO_set_retry_read(bio);
  } else {
    line.failure = errno;
  }
  return 0;
}

long control_wire(BIO* bio, int command, long /*number*/, void* /*pointer*/) noexcept {
  if (command == BIO_CTRL_FLUSH) return 1;
  return command == BIO_CTRL_EOF && wire_behind(bio).is_at_end ? 1 : 0;
}

const BIO_METHOD* wire_method() {
  static const method_handle method = [] {
    method_handle made(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket with a buffer"));
    if (made == nullptr) return made;
    ::BIO_meth_set_write_ex(made.get(), write_wire);
    ::BIO_meth_set_read_ex(made.get(), read_wire);
    ::BIO_meth_set_ctrl(made.get(), control_wire);
    return made;
  }();
  return method.get();
}

/// The bytes of many runs, one after the other.
class run_reader {
 public:
  explicit run_reader(std::span<const iovec> runs) noexcept : runs_(runs) {}

  [[nodiscard]] bool is_at_end() const noexcept { return runs_.empty(); }
  /// The rest of the present run.
  [[nodiscard]] std::span<const std::byte> run() const noexcept {
    return std::span(static_cast<const std::byte*>(runs_.front().iov_base), runs_.front().iov_len).subspan(done_);
  }
  void skip(std::size_t bytes) noexcept {
    done_ += bytes;
    if (done_ < runs_.front().iov_len) return;
    runs_ = runs_.subspan(1);
    done_ = 0;
  }
  /// As many bytes as there are and `room` takes.
  std::size_t copy(std::span<std::byte> room) noexcept {
    std::size_t copied = 0;
    while (!is_at_end() && copied < room.size()) {
      const auto some = run().first(std::min(room.size() - copied, run().size()));
      std::memcpy(room.data() + copied, some.data(), some.size());
      copied += some.size();
      skip(some.size());
    }
    return copied;
  }

 private:
  std::span<const iovec> runs_;
  std::size_t done_ = 0;
};

std::string text_of(unsigned long failure) {
  if (failure == 0) return "no reason is given";
  const char* const reason = ::ERR_reason_error_string(failure);
  return reason != nullptr ? reason : "error " + std::to_string(failure);
}

bool is_alert_about_certificate(int reason) noexcept {
  constexpr std::array about_it{SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
                                SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
                                SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
                                SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
                                SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,
                                SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
                                SSL_R_TLSV1_ALERT_UNKNOWN_CA,
                                SSL_R_TLSV1_ALERT_ACCESS_DENIED};
  return std::ranges::find(about_it, reason) != about_it.end();
}

std::string explained(long verdict, const std::string& name) {
  const std::string reason = ::X509_verify_cert_error_string(verdict);
  switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "its certificate is not for " + name;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return "its certificate has no signature of a trusted authority (" + reason + ")";
    default: return "its certificate is refused: " + reason;
  }
}

}  // namespace

struct client_stream::session_state {
  wire line{};
  std::unique_ptr<context> settings;
  session_handle session;
  std::string name;  ///< that the certificate has to have
  bool is_open = false, has_failed = false;
  std::array<std::byte, record_bytes> stage{};

  result<void> expect(const std::string& host);
  [[nodiscard]] std::unexpected<error> failure_of(int outcome);
  [[nodiscard]] std::unexpected<error> protocol_failure();
  result<std::size_t> encrypt(std::span<const std::byte> bytes);
  [[nodiscard]] result<void> flush();
};

/// The name that the certificate must have; a name, not a number, is also sent to the server, which may have several.
result<void> client_stream::session_state::expect(const std::string& host) {
  name = host.substr(0, host.find('%'));  // the interface of an address is this machine's business
  if (name.ends_with('.')) name.pop_back();
  X509_VERIFY_PARAM* const rules = ::SSL_get0_param(session.get());
  ::X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool is_number = numeric_address({.host = name, .port = 1}).has_value();
  const bool is_taken = is_number
                            ? ::X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) == 1
                            : !name.empty() && ::X509_VERIFY_PARAM_set1_host(rules, name.data(), name.size()) == 1 &&
                                  ::SSL_set_tlsext_host_name(session.get(), name.c_str()) == 1;
  if (is_taken) return {};
  return fail(error_code::invalid_argument, "\"" + name + "\" is no name of a server's certificate");
}

result<client_stream> client_stream::make(const client_settings& settings, const std::string& host) {
  ::ERR_clear_error();
  auto made = std::make_unique<session_state>();
  auto loaded = make_client_context(settings.files);
  if (!loaded) return std::unexpected(loaded.error());
  made->settings = std::move(*loaded);
  SSL_CTX* const library = made->settings->native_handle();
  ::SSL_CTX_set_read_ahead(library, 1);
  ::SSL_CTX_set_default_read_buffer_len(library, incoming_bytes);
  made->session.reset(::SSL_new(library));
  BIO* const bio = wire_method() != nullptr ? ::BIO_new(wire_method()) : nullptr;
  if (bio != nullptr) {
    ::BIO_set_data(bio, &made->line);
    ::BIO_set_init(bio, 1);
  }
  if (made->session == nullptr || bio == nullptr) {
    ::BIO_free(bio);
    return fail(error_code::system, "no memory for TLS");
  }
  ::SSL_set_bio(made->session.get(), bio, bio);
  if (auto expected = made->expect(settings.name.empty() ? host : settings.name); !expected) {
    return std::unexpected(expected.error());
  }
  made->line.outgoing.reserve(outgoing_bytes);
  return client_stream(std::move(made));
}

client_stream::client_stream(std::unique_ptr<session_state> state) : state_(std::move(state)) {}
client_stream::client_stream(client_stream&&) noexcept = default;
client_stream& client_stream::operator=(client_stream&&) noexcept = default;
client_stream::~client_stream() = default;

/// The reason of a call of OpenSSL that failed.
std::unexpected<error> client_stream::session_state::failure_of(int outcome) {
  const int what = ::SSL_get_error(session.get(), outcome);
  has_failed = true;
  if (what == SSL_ERROR_ZERO_RETURN) return fail(error_code::system, "the server closed the connection");
  if (line.failure != 0) return fail_errno(line.failure, "receive", "");
  if (line.is_at_end) {
    return fail(error_code::system, is_open ? "the server closed the connection without the end that TLS has"
                                            : "the server closed the connection in the handshake of TLS");
  }
  return protocol_failure();
}

std::unexpected<error> client_stream::session_state::protocol_failure() {
  const unsigned long failure = ::ERR_get_error();
  const int reason = ::ERR_GET_REASON(failure);
  ::ERR_clear_error();
  if (const long verdict = ::SSL_get_verify_result(session.get()); !is_open && verdict != X509_V_OK) {
    return fail(error_code::permission_denied, explained(verdict, name));
  }
  if (ERR_GET_LIB(failure) != ERR_LIB_SSL) return fail(error_code::malformed, "TLS: " + text_of(failure));
  if (reason == SSL_R_WRONG_VERSION_NUMBER && !is_open) {
    return fail(error_code::protocol_mismatch, "it does not speak TLS");
  }
  if (is_alert_about_certificate(reason)) {
    return fail(error_code::permission_denied,
                "it does not take this client's certificate, or wants one (" + text_of(failure) + ")");
  }
  return fail(error_code::malformed, "TLS: " + text_of(failure));
}

result<bool> client_stream::shake_hands(int socket) {
  session_state& self = *state_;
  self.line.socket = socket;
  ::ERR_clear_error();
  const int outcome = ::SSL_connect(self.session.get());
  if (outcome == 1) {
    self.is_open = true;
    if (auto sent = self.flush(); !sent) return std::unexpected(sent.error());
    return true;
  }
  if (::SSL_get_error(self.session.get(), outcome) != SSL_ERROR_WANT_READ) {
    auto failed = self.failure_of(outcome);
    (void)self.flush();  // the alert with the reason
    return failed;
  }
  if (auto sent = self.flush(); !sent) return std::unexpected(sent.error());
  return false;
}

result<std::size_t> client_stream::read(std::span<std::byte> room, byte_origin origin) {
  session_state& self = *state_;
  self.line.may_receive = origin == byte_origin::socket;
  ::ERR_clear_error();
  std::size_t got = 0;
  const int outcome = ::SSL_read_ex(self.session.get(), room.data(), room.size(), &got);
  self.line.may_receive = true;
  if (outcome == 1) return got;
  if (::SSL_get_error(self.session.get(), outcome) == SSL_ERROR_WANT_READ) return 0;
  return self.failure_of(outcome);
}

result<std::size_t> client_stream::session_state::encrypt(std::span<const std::byte> bytes) {
  std::size_t written = 0;
  ::ERR_clear_error();
  const int outcome = ::SSL_write_ex(session.get(), bytes.data(), bytes.size(), &written);
  if (outcome == 1) return written;
  return failure_of(outcome);
}

result<std::size_t> client_stream::write(std::span<const iovec> runs) {
  session_state& self = *state_;
  run_reader reader(runs);
  std::size_t taken = 0;
  while (!reader.is_at_end() && self.line.room() >= record_room) {
    auto piece = reader.run().first(std::min(record_bytes, reader.run().size()));
    if (piece.size() == record_bytes) {
      reader.skip(record_bytes);
    } else {
      piece = std::span(self.stage).first(reader.copy(self.stage));
    }
    const auto written = self.encrypt(piece);
    if (!written) return written;
    taken += *written;
  }
  if (auto sent = self.flush(); !sent) return std::unexpected(sent.error());
  return taken;
}

result<void> client_stream::session_state::flush() {
  while (line.sent < line.outgoing.size()) {
    const ssize_t n = ::send(line.socket, line.outgoing.data() + line.sent, line.outgoing.size() - line.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (n < 0) {
      has_failed = true;
      return fail_errno("send");
    }
    line.sent += static_cast<std::size_t>(n);
  }
  line.outgoing.clear();
  line.sent = 0;
  return {};
}

result<void> client_stream::flush() {
  return state_->flush();
}

bool client_stream::is_unsent() const noexcept {
  return !state_->has_failed && !state_->line.outgoing.empty();
}

void client_stream::end() noexcept {
  if (!state_->is_open || state_->has_failed) return;
  ::ERR_clear_error();
  (void)::SSL_shutdown(state_->session.get());
  ::ERR_clear_error();
  if (auto sent = state_->flush(); !sent) return;
}

}  // namespace cenote::tls
