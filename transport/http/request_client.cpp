#include "transport/http/request_client.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "core/unique_fd.hpp"
#include "transport/tls/contexts.hpp"

namespace cenote::http {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using wire_failure = boost::system::error_code;

constexpr std::uint64_t most_answer_bytes = std::uint64_t{1} << 30;
constexpr std::size_t most_refusal_bytes = std::size_t{1} << 20;  // of a followed answer with another status than 200

using address_iterator = asio::ip::tcp::resolver::results_type::const_iterator;
using wire_request = beast::http::request<beast::http::string_body>;
using answer_parser = beast::http::response_parser<beast::http::string_body>;

wire_request wire_form(const service_address& service, const service_request& request) {
  wire_request made(beast::http::string_to_verb({request.method.data(), request.method.size()}),
                    {request.target.data(), request.target.size()}, 11);
  made.set(beast::http::field::host, service.socket.empty() ? service.address.text() : "localhost");
  made.set(beast::http::field::connection, "close");
  if (!service.token.empty()) made.set(beast::http::field::authorization, "Bearer " + service.token);
  if (!request.body.empty()) {
    made.set(beast::http::field::content_type, {request.content_type.data(), request.content_type.size()});
    made.body() = request.body;
  }
  made.prepare_payload();
  return made;
}

std::string name_of(const service_address& service) {
  return service.socket.empty() ? service.address.text() : service.socket;
}

/// One question, as asynchronous steps that a deadline cuts off.
class conversation {
 public:
  /// Without a visitor the answer is read whole.
  conversation(const service_address& service, const service_request& request, const part_visitor* visit = nullptr)
      : service_(service), request_(wire_form(service, request)), visit_(visit) {
    parser_.body_limit(visit_ == nullptr ? most_answer_bytes : std::numeric_limits<std::uint64_t>::max());
  }

  result<service_answer> run(std::chrono::milliseconds limit, const std::stop_token& stop = {}) {
    const std::stop_callback stopped(stop, [this] { context_.stop(); });
    const bool is_local = !service_.socket.empty();
    if (auto begun = is_local ? begin_local() : begin_tcp(); !begun) return std::unexpected(begun.error());
    context_.run_for(limit);
    if (!is_over_) return fail(error_code::deadline_exceeded, name_of(service_) + " does not answer in time");
    if (failure_) return *failure_;
    const auto& answer = parser_.get();
    return service_answer{static_cast<int>(answer.result_int()), answer.body()};
  }

 private:
  result<void> begin_local() {
    auto stream = std::make_shared<asio::local::stream_protocol::socket>(context_);
    stream->async_connect(asio::local::stream_protocol::endpoint(service_.socket), [this, stream](wire_failure failed) {
      if (!ends_with(failed)) write(stream);
    });
    return {};
  }

  result<void> begin_tcp() {
    wire_failure failed;
    const auto found =
        asio::ip::tcp::resolver(context_).resolve(service_.address.host, std::to_string(service_.address.port), failed);
    if (failed) return fail(error_code::system, service_.address.host + ": " + failed.message());
    addresses_ = found;
    if (!service_.ca.empty()) return begin_tls();
    auto stream = std::make_shared<asio::ip::tcp::socket>(context_);
    connect(*stream, addresses_.begin(), asio::error::host_not_found, [this, stream](wire_failure refused) {
      if (!ends_with(refused)) write(stream);
    });
    return {};
  }

  /// To the first address that answers. The sockets are closed by exec(): in a node those that are not belong to UCX,
  /// whose calls send other bytes first (transport/ucx/socket_numbers.hpp).
  template <class Next>
  void connect(asio::ip::tcp::socket& socket, const address_iterator& place, wire_failure last, Next next) {
    if (place == addresses_.end()) return asio::post(context_, [next, last] { next(last); });
    const asio::ip::tcp::endpoint address = place->endpoint();
    unique_fd opened(::socket(address.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
    wire_failure failed(errno, boost::system::system_category());
    if (opened) socket.assign(address.protocol(), opened.get(), failed);
    if (failed || !opened) return connect(socket, std::next(place), failed, next);
    (void)opened.release();
    socket.async_connect(address, [this, &socket, place, next](wire_failure refused) {
      if (!refused) return next(refused);
      wire_failure ignored;
      socket.close(ignored);
      connect(socket, std::next(place), refused, next);
    });
  }

  result<void> begin_tls() {
    auto made =
        tls::make_client_context({.authority = service_.ca, .certificate = service_.certificate, .key = service_.key});
    if (!made) return std::unexpected(made.error());
    tls_ = std::move(*made);
    tls_->set_verify_callback(asio::ssl::host_name_verification(service_.address.host));
    auto stream = std::make_shared<asio::ssl::stream<asio::ip::tcp::socket>>(context_, *tls_);
    connect(stream->next_layer(), addresses_.begin(), asio::error::host_not_found,
            [this, stream](wire_failure refused) {
              if (ends_with(refused)) return;
              stream->async_handshake(asio::ssl::stream_base::client, [this, stream](wire_failure untrusted) {
                if (!ends_with(untrusted)) write(stream);
              });
            });
    return {};
  }

  template <class Stream>
  void write(std::shared_ptr<Stream> stream) {
    beast::http::async_write(*stream, request_, [this, stream](wire_failure failed, std::size_t) {
      if (ends_with(failed)) return;
      if (visit_ != nullptr) return read_parts(stream);
      beast::http::async_read(*stream, buffer_, parser_, [this, stream](wire_failure cut, std::size_t) {
        if (!ends_with(cut)) is_over_ = true;
      });
    });
  }

  template <class Stream>
  void read_parts(std::shared_ptr<Stream> stream) {
    beast::http::async_read_some(*stream, buffer_, parser_, [this, stream](wire_failure cut, std::size_t) {
      if (ends_with(cut)) return;
      is_over_ = !take_part() || parser_.is_done();
      if (!is_over_) read_parts(stream);
    });
  }

  // Whether more is wanted.
  bool take_part() {
    if (!parser_.is_header_done()) return true;
    auto& answer = parser_.get();
    if (answer.result_int() == 200) {
      const std::string part = std::exchange(answer.body(), {});
      return part.empty() || (*visit_)(part);
    }
    if (answer.body().size() <= most_refusal_bytes) return true;
    failure_ = fail(error_code::malformed, name_of(service_) + " refuses with a text that is too long");
    return false;
  }

  bool ends_with(wire_failure failed) {
    if (!failed) return false;
    const bool is_wire = failed.category() == beast::http::make_error_code(beast::http::error::bad_value).category();
    failure_ = fail(is_wire ? error_code::malformed : error_code::system, name_of(service_) + ": " + failed.message());
    is_over_ = true;
    return true;
  }

  const service_address& service_;
  wire_request request_;
  const part_visitor* visit_;
  asio::io_context context_{1};
  asio::ip::tcp::resolver::results_type addresses_;
  std::unique_ptr<tls::context> tls_;
  beast::flat_buffer buffer_;
  answer_parser parser_;
  std::optional<std::unexpected<error>> failure_;
  bool is_over_ = false;
};

}  // namespace

result<service_answer> ask_service(const service_address& service, const service_request& request,
                                   std::chrono::milliseconds limit) {
  return conversation(service, request).run(limit);
}

result<service_answer> follow_service(const service_address& service, const service_request& request,
                                      std::chrono::milliseconds limit, const part_visitor& visit,
                                      const std::stop_token& stop) {
  return conversation(service, request, &visit).run(limit, stop);
}

}  // namespace cenote::http
