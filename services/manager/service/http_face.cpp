#include "services/manager/service/http_face.hpp"

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

namespace cenote::manager {

namespace {

/// An answer that the writer makes.
struct late_answer final : http::reply_event {
  answer_writer write{};  ///< set before the event fires
  std::atomic<bool> is_there{false};
};

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void http_face::handle(const http::http_request& request, http::http_reply& reply) {
  if (request.event != nullptr) {
    static_cast<late_answer&>(*request.event).write(answer_form::json, reply.body);
  } else if (!answer_page(request, reply)) {
    answer_call(request, reply);
  }
}

void http_face::answer_call(const http::http_request& request, http::http_reply& reply) {
  const rpc_row* const row = find_json_path(face_, request.path);
  if (row == nullptr) return reply.fail(404, "there is no such path; calls are POST /api/<name>");
  if (request.method != "POST") return reply.refuse_method("POST");
  auto answer = std::make_shared<late_answer>();
  const auto called = desk_.call(*row, answer_form::json, text_of(request.body), [answer](answer_writer write) {
    answer->write = std::move(write);
    answer->is_there.store(true, std::memory_order_release);
    answer->fire();
  });
  if (!called) {
    if (called.error().fault == json_fault::malformed) reply.status = 400;
    append_header(answer_form::json, static_cast<std::uint16_t>(called.error().cause.code),
                  called.error().cause.message, new_request_id(), reply.body);
    append_end(answer_form::json, reply.body);
  } else if (answer->is_there.load(std::memory_order_acquire)) {
    answer->write(answer_form::json, reply.body);
  } else {
    reply.event = std::move(answer);
  }
}

bool http_face::answer_page(const http::http_request& request, http::http_reply& reply) {
  const bool is_health = request.path == "/healthz";
  if (face_ != rpc_face::admin || (!is_health && request.path != "/metrics")) return false;
  if (request.method != "GET") {
    reply.refuse_method("GET, HEAD");
    return true;
  }
  reply.content_type = is_health ? "text/plain" : "text/plain; version=0.0.4";
  if (!is_health) {
    write_metrics(reply.body);
  } else if (desk_.is_healthy()) {
    reply.body = "ok\n";
  } else {
    reply.status = 503;
    reply.body = "the manager recovers\n";
  }
  return true;
}

void http_face::write_metrics(std::string& out) const {
  const manager_figures& figures = writer_.figures();
  const auto add = [&](std::string_view name, std::string_view type, std::string_view about,
                       const std::atomic<std::uint64_t>& figure) {
    const std::string metric = "cenote_manager_" + std::string(name);
    out += "# HELP " + metric + " " + std::string(about) + "\n# TYPE " + metric + " " + std::string(type) + "\n";
    out += metric + " " + std::to_string(figure.load(std::memory_order_relaxed)) + "\n";
  };
  add("journal_batches_total", "counter", "Batches that the journal was given.", figures.rounds);
  add("journal_failures_total", "counter", "Batches that it did not take.", figures.failed_rounds);
  add("recoveries_total", "counter", "Recoveries from the journal, the first one included.", figures.recoveries);
  add("damaged_rows_total", "counter", "Rows of the journal that could not be read.", figures.damaged_rows);
  add("sessions", "gauge", "Write sessions that are open.", figures.sessions);
  add("waiting_removals", "gauge", "Ranges of blocks that wait for their deletion.", figures.waiting_removals);
  add("evicted_blocks_total", "counter", "Blocks that were evicted since the last recovery.", figures.evicted);
  add("orphaned_blocks_total", "counter", "Of these, blocks with a served block behind them.", figures.orphaned);
}

}  // namespace cenote::manager
