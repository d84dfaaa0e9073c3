#include "commands/bench/manager/reader_load.hpp"

#include "commands/bench/support.hpp"

namespace cenote::bench {

namespace {

using namespace manager;

constexpr std::size_t read_chains = 64;

void look_up(call_desk& desk, const std::string& body, std::string& answer) {
  answer.clear();
  (void)desk.call(row_of(manager::rpc::get_cache_location), answer_form::wire, body, {},
                  [&](const answer_writer& write) { write(answer_form::wire, answer); });
}

}  // namespace

reader_load::reader_load(const private_manager& manager, std::uint64_t chains)
    : manager_(manager), bodies_(read_chains) {
  for (std::size_t i = 0; i < bodies_.size(); ++i) {
    append_message(chain_request<proto::meta::GetCacheLocationRequest>(chain_kind::one_spec, mixed(i) % chains),
                   answer_form::wire, bodies_[i]);
  }
}

double reader_load::rate(double seconds) const {
  const std::atomic<bool> never{false};
  return rate(never, seconds);
}

double reader_load::rate(const std::atomic<bool>& is_over, double seconds) const {
  call_desk desk(manager_.parts());
  std::string answer;
  std::uint64_t count = 0;
  const stopwatch time;
  while (!is_over.load(std::memory_order_relaxed) && time.seconds() < seconds) {
    look_up(desk, bodies_[count++ % bodies_.size()], answer);
  }
  return static_cast<double>(count) / time.seconds();
}

std::uint64_t reader_load::answer_bytes() const {
  call_desk desk(manager_.parts());
  std::string answer;
  std::uint64_t sum = 0;
  for (const std::string& body : bodies_) {
    look_up(desk, body, answer);
    sum += answer.size();
  }
  return sum;
}

}  // namespace cenote::bench
