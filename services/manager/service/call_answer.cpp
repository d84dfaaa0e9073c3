#include "services/manager/service/call_answer.hpp"

#include <atomic>

#include "core/random_number.hpp"
#include "services/manager/store/number_text.hpp"
#include "transport/manager/proto/admin.pb.h"

namespace cenote::manager {

std::string new_request_id() {
  static const std::uint64_t first = random_number();
  static std::atomic<std::uint64_t> count{0};
  return hex_digits(first + count.fetch_add(1, std::memory_order_relaxed));
}

void append_message(const google::protobuf::Message& message, answer_form form, std::string& out) {
  if (form == answer_form::json) {
    write_json(message, out);
  } else {
    message.AppendToString(&out);
  }
}

std::unexpected<rpc_refusal> refuse_instance(const std::string& id) {
  return refuse(answer_code::instance_not_exist, "there is no instance " + id);
}

void append_refusal(const rpc_refusal& reason, answer_form form, std::string& out) {
  append_header(form, static_cast<std::uint16_t>(reason.code), reason.message, new_request_id(), out);
  append_end(form, out);
}

void find_trace_id(const call_body& body) {
  ::kv_cache_manager::proto::admin::CheckHealthRequest request;
  if (read_request(body, request)) take_trace_id(body, request);
}

std::expected<void, body_fault> read_request(const call_body& body, google::protobuf::Message& request) {
  if (body.form == answer_form::wire) {
    if (request.ParseFromArray(body.text.data(), static_cast<int>(body.text.size()))) return {};
    return std::unexpected(
        body_fault{.fault = json_fault::no_object,
                   .cause = {.code = answer_code::invalid_argument,
                             .message = "the request is no " + std::string(request.GetDescriptor()->name())}});
  }
  if (auto read = read_json(body.text, request); !read) {
    return std::unexpected(body_fault{.fault = read.error().fault, .cause = std::move(read.error().cause)});
  }
  return {};
}

}  // namespace cenote::manager
