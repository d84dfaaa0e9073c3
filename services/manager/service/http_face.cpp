#include "services/manager/service/http_face.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

namespace cenote::manager {

namespace {

/// An answer that another thread makes, or the access that it waits for.
struct late_answer final : http::reply_event {
  std::optional<access_outcome<call_access>> access{};  ///< with `write`, set before the event fires
  answer_writer write{};
  std::optional<call_timer> timer{};  ///< with `write`
  request_bytes bytes{};
  std::atomic<bool> is_there{false};

  void append_to(std::string& out) const {
    write(answer_form::json, out);
    if (timer) timer->end(write.code());
  }
};

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

call_evidence evidence_of(const http::http_request& request) noexcept {
  return {.address = request.peer_address,
          .certificate_name = request.certificate_name,
          .authorization = request.header("Authorization")};
}

void refuse_over_http(const access_refusal& refusal, http::http_reply& reply) {
  rpc_refusal reason{.code = answer_code::permission_denied, .message = refusal.message};
  switch (refusal.fault) {
    case access_fault::not_ready: reason.code = answer_code::service_not_ready; break;
    case access_fault::no_account:
      reply.status = 401;
      reply.challenge = R"(Basic realm="cenote", charset="UTF-8")";
      break;
    case access_fault::no_right: reply.status = 403; break;
    case access_fault::too_many:
      reply.status = 429;
      reply.retry_after = seconds_of(refusal.retry_after);
      reason.code = answer_code::rate_limited;
      break;
  }
  append_refusal(reason, answer_form::json, reply.body);
}

}  // namespace

std::optional<http_face::request_target> http_face::target_of(std::string_view path) const noexcept {
  if (face_ == rpc_face::admin && path == "/healthz") {
    return request_target{.role = rpc_role::open, .methods = "GET, HEAD"};
  }
  const bool is_page = path == "/metrics" || path == "/status";
  if (face_ == rpc_face::admin && is_page) return request_target{.methods = "GET, HEAD"};
  const rpc_row* const row = find_json_path(face_, path);
  if (row == nullptr) return std::nullopt;
  return request_target{.row = row, .role = row->role, .methods = "POST"};
}

void http_face::handle(const http::http_request& request, http::http_reply& reply) {
  auto* const event = static_cast<late_answer*>(request.event);
  if (event != nullptr && event->write) return event->append_to(reply.body);
  const auto target = target_of(request.path);
  if (!target) return reply.fail(404, "there is no such path; calls are POST /api/<name>");
  if (request.method != (target->row != nullptr ? "POST" : "GET")) return reply.refuse_method(target->methods);
  const auto access = event != nullptr ? std::move(event->access)
                                       : access_.control().look(evidence_of(request), desk_.registry(), target->role,
                                                                std::chrono::steady_clock::now());
  if (!access) return check_later(request, target->role, reply);
  if (!*access) return refuse_over_http(access->error(), reply);
  if (target->row == nullptr) return answer_page(request.path, reply);
  answer_call(*target->row, request, **access, reply);
}

void http_face::check_later(const http::http_request& request, rpc_role role, http::http_reply& reply) {
  auto answer = std::make_shared<late_answer>();
  access_.check(evidence_of(request), desk_.registry(), role, [answer](access_outcome<call_access> outcome) {
    answer->access = std::move(outcome);
    answer->fire();
  });
  reply.event = std::move(answer);
}

void http_face::answer_call(const rpc_row& row, const http::http_request& request, const call_access& access,
                            http::http_reply& reply) {
  auto bytes = access_.control().admit(access, request.body.size(), std::chrono::steady_clock::now());
  if (!bytes) return refuse_over_http(bytes.error(), reply);
  auto answer = std::make_shared<late_answer>();
  answer->bytes = std::move(*bytes);
  answer->timer = desk_.timer_of(row);
  const auto receive = [answer](answer_writer write) {
    answer->write = std::move(write);
    answer->is_there.store(true, std::memory_order_release);
    answer->fire();
  };
  const auto called = desk_.call(row, answer_form::json, text_of(request.body), access, receive);
  if (!called) {
    if (called.error().fault == json_fault::malformed) reply.status = 400;
    append_refusal(called.error().cause, answer_form::json, reply.body);
    answer->timer->end(called.error().cause.code);
  } else if (answer->is_there.load(std::memory_order_acquire)) {
    answer->append_to(reply.body);
  } else {
    reply.event = std::move(answer);
  }
}

void http_face::answer_page(std::string_view path, http::http_reply& reply) {
  if (path == "/metrics") {
    reply.content_type = "text/plain; version=0.0.4";
    reply.body = desk_.metrics_page();
  } else if (path == "/status") {
    desk_.append_status(reply.body);
  } else {
    const bool is_healthy = desk_.is_healthy();
    reply.content_type = "text/plain";
    reply.body = is_healthy ? "ok\n" : "the manager recovers\n";
    if (!is_healthy) reply.status = 503;
  }
}

}  // namespace cenote::manager
