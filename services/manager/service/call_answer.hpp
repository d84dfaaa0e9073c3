// Answers of calls, in the form that their client wants.
#pragma once

#include <google/protobuf/message.h>

#include <concepts>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "services/manager/service/location_text.hpp"
#include "transport/manager/answer_code.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::manager {

/// Appends an answer to `out`, which has a code. It may be called on any thread, once.
class answer_writer {
 public:
  using append_function = std::function<void(answer_form form, std::string& out)>;

  answer_writer() = default;
  /// `reason`: the text of a refusal, for the log.
  answer_writer(answer_code code, append_function append, std::string reason = {})
      : code_(code), append_(std::move(append)), reason_(std::move(reason)) {}
  /// An answer that is OK.
  template <std::invocable<answer_form, std::string&> Append>
    requires(!std::same_as<std::remove_cvref_t<Append>, answer_writer>)
  explicit(false) answer_writer(Append&& append) : append_(std::forward<Append>(append)) {}

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(append_); }
  [[nodiscard]] answer_code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  void operator()(answer_form form, std::string& out) const { append_(form, out); }

 private:
  answer_code code_ = answer_code::ok;
  append_function append_;
  std::string reason_;
};
/// Gets an answer, here or later on the writer's thread.
using answer_receiver = std::function<void(answer_writer)>;

/// A body that was not understood. Over HTTP its status is 400 if it is malformed.
struct body_fault {
  json_fault fault = json_fault::no_object;
  rpc_refusal cause{};
};

/// Appends an answer that is a header alone, as every response begins with one.
void append_refusal(const rpc_refusal& reason, answer_form form, std::string& out);
/// An instance that there is not.
[[nodiscard]] std::unexpected<rpc_refusal> refuse_instance(const std::string& id);

/// The name by which logs and clients refer to one request: 16 digits.
[[nodiscard]] std::string new_request_id();

/// Appends a message in either form.
void append_message(const google::protobuf::Message& message, answer_form form, std::string& out);

/// Fills the header of a response.
template <class Response>
void set_header(Response& response, answer_code code, const std::string& message) {
  auto* const header = response.mutable_header();
  header->mutable_status()->set_code(static_cast<decltype(header->status().code())>(code));
  header->mutable_status()->set_message(message);
  header->set_request_id(new_request_id());
}

/// The answer of a response without more than a header.
template <class Response>
[[nodiscard]] answer_writer refusal_answer(rpc_refusal reason) {
  const answer_code code = reason.code;
  std::string text = reason.message;
  return {code,
          [reason = std::move(reason)](answer_form form, std::string& out) {
            Response response;
            set_header(response, reason.code, reason.message);
            append_message(response, form, out);
          },
          std::move(text)};
}

/// An answer whose fields are set; its header becomes OK.
template <class Response>
[[nodiscard]] answer_writer response_answer(Response response, std::string note = {}) {
  auto shared = std::make_shared<Response>(std::move(response));
  set_header(*shared, answer_code::ok, note);
  return [shared = std::move(shared)](answer_form form, std::string& out) { append_message(*shared, form, out); };
}

/// The bytes of a request.
struct call_body {
  answer_form form = answer_form::json;
  std::string_view text{};
  std::string* trace_id = nullptr;  ///< gets the client's name for the request once it is read; null: not wanted
};

/// Reads a request. Errors: invalid_argument in all cases.
[[nodiscard]] std::expected<void, body_fault> read_request(const call_body& body, google::protobuf::Message& request);

/// Gives the name that a client has for its request to the call's log.
template <class Request>
void take_trace_id(const call_body& body, const Request& request) {
  if constexpr (requires { request.trace_id(); }) {
    if (body.trace_id != nullptr) *body.trace_id = request.trace_id();
  }
}

/// The same where the request is not read as what it is: all have the name in one place.
void find_trace_id(const call_body& body);

/// Calls `use` with a request, or gives its fault.
template <class Request, class Use>
[[nodiscard]] std::expected<void, body_fault> with_request(const call_body& body, Use&& use) {
  Request request;
  if (auto read = read_request(body, request); !read) return read;
  take_trace_id(body, request);
  use(std::move(request));
  return {};
}
/// The same with one that may outlive the call.
template <class Request, class Use>
[[nodiscard]] std::expected<void, body_fault> with_shared_request(const call_body& body, Use&& use) {
  auto request = std::make_shared<Request>();
  if (auto read = read_request(body, *request); !read) return read;
  take_trace_id(body, *request);
  use(std::shared_ptr<const Request>(std::move(request)));
  return {};
}

}  // namespace cenote::manager
