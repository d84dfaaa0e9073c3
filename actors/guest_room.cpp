#include "actors/guest_room.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr std::uint32_t guest_pins = 65536;

}  // namespace

guest_keeper::behavior_type guest_keeper::make_behavior() {
  return {
      [this](guest_atom, const guest_order_ptr& order) {
        switch (order->what) {
          case guest_order::kind::open: return open(order);
          case guest_order::kind::run: return run(order);
          case guest_order::kind::close:
            std::erase_if(late_, [&](const auto& each) { return each.second->session == order->session; });
            return release(order->session);
          case guest_order::kind::disconnect: return send(dram_, disconnect_atom_v, order->session);
          case guest_order::kind::find_slabs:
            request(dram_, caf::infinite, places_atom_v, order->instance, order->slabs)
                .then([this, order](const slab_places_ptr& found) { tell_([order, found] { order->found(*found); }); });
            return;
          case guest_order::kind::clear_node: return clear_node(order);
        }
      },
      [this](answer_atom, const completions_ptr& completions) {
        for (const memory::completion& each : *completions) {
          const auto found = late_.find(each.request);
          if (found == late_.end()) continue;
          tell_([order = found->second, each] { order->ran({each}); });
          late_.erase(found);
        }
      },
  };
}

void guest_keeper::open(const guest_order_ptr& order) {
  auto wanted = std::make_shared<instance_request>();
  wanted->spec = order->spec;
  wanted->owner = ::geteuid();
  request(dram_, caf::infinite, open_instance_atom_v, instance_request_ptr(std::move(wanted)))
      .then([this, order](const opened_instance_ptr& of) { add(order, *of); },
            [this, order](const caf::error& why) {
              tell_([order, text = caf::to_string(why)] { order->opened(fail(error_code::internal, text)); });
            });
}

/// The instance is there: gives it a session of the guest's.
void guest_keeper::add(const guest_order_ptr& order, opened_instance& of) {
  const auto refuse = [&](error why) {
    log_warn(logger(options_.log),
             options_.is_of_others ? "an instance of another node is refused" : "an instance of a device is refused",
             {{"instance", order->spec.id}, {"reason", why.describe()}});
    tell_([order, why = std::move(why)] { order->opened(std::unexpected(why)); });
  };
  if (const auto opened = of.status.get(); !opened) return refuse(opened.error());
  const auto number = next_session();
  if (!number) return refuse(error(error_code::limit_exceeded, "too many sessions of guests"));
  auto resources = std::make_shared<session_resources>();
  resources->number = *number;
  resources->instance = of.number;
  resources->client_name = "guest";
  resources->pid = ::getpid();
  resources->uid = ::geteuid();
  resources->gid = ::getegid();
  resources->attached = std::chrono::system_clock::now();
  resources->pin_slots = guest_pins;
  if (const auto made = make_session(*resources); !made) return refuse(made.error());
  auto index = memory::open_index(std::move(of.index));
  if (!index) return refuse(index.error());
  auto versions = memory::open_versions(std::move(of.versions));
  if (!versions) return refuse(versions.error());
  auto session = std::make_shared<cluster::guest_session>(std::move(*index), std::move(*versions), resources->view);
  session->number = resources->number;
  session->instance = of.number;
  session->keeps = resources;
  enter(order, resources, session);
}

void guest_keeper::enter(const guest_order_ptr& order, const std::shared_ptr<session_resources>& resources,
                         const cluster::guest_session_ptr& session) {
  sessions_.insert(session->number);
  request(dram_, caf::infinite, open_atom_v, session_ptr(resources))
      .then(
          [this, order, session](const outcome& added) {
            if (added.code != error_code::ok) sessions_.erase(session->number);
            tell_([order, session, added] {
              if (const auto opened = added.get(); !opened) return order->opened(std::unexpected(opened.error()));
              order->opened(session);
            });
          },
          [this, order](const caf::error& why) {
            tell_([order, text = caf::to_string(why)] { order->opened(fail(error_code::internal, text)); });
          });
}

void guest_keeper::release(std::uint64_t session) {
  request(dram_, caf::infinite, release_atom_v, session).then([this, session](const outcome&) {
    sessions_.erase(session);
  });
}

/// Epoch (high half) | number (low half), as of other sessions. Nothing: all are in use.
std::optional<std::uint64_t> guest_keeper::next_session() {
  for (std::uint32_t tries = 0; tries < options_.numbers.count; ++tries) {
    const std::uint32_t low = options_.numbers.first + ++last_session_ % options_.numbers.count;
    const std::uint64_t number = (epoch_ << 32U) | low;
    if (!sessions_.contains(number)) return number;
  }
  return std::nullopt;
}

/// Requests are numbered anew, so that those of all guests differ; their answers have the guest's numbers again.
void guest_keeper::run(const guest_order_ptr& order) {
  auto work = std::make_shared<blocks::batch>();
  work->session = order->session;
  work->is_guest = options_.is_of_others;
  work->entries = order->entries;
  const std::uint32_t first = next_request_;
  for (memory::submission& each : work->entries) each.request += first;
  next_request_ = work->entries.back().request + 1;
  if (order->is_late) late_.emplace(first, order);
  request(dram_, caf::infinite, run_atom_v, batch_ptr(std::move(work)))
      .then(
          [this, order, first](const batch_ptr& finished) {
            const bool is_answered = !order->is_late || finished->late_answers == 0;
            if (!is_answered) return;
            if (order->is_late && late_.erase(first) == 0) return;
            auto answers = finished->completions;
            for (memory::completion& each : answers) each.request -= first;
            tell_([order, answers = std::move(answers)] { order->ran(answers); });
          },
          [this, order, first](const caf::error&) {
            late_.erase(first);
            tell_([order] { order->ran({}); });
          });
}

void guest_keeper::clear_node(const guest_order_ptr& order) {
  log_warn(logger(options_.log), "this node was written off while it was away: it clears all of its blocks");
  request(dram_, caf::infinite, clear_node_atom_v)
      .then(
          [this, order](const outcome& answer) {
            const auto cleared = answer.get();
            if (cleared) {
              log_info(logger(options_.log), "this node has cleared its blocks", {{"blocks", *cleared}});
            } else {
              log_warn(logger(options_.log), "this node has not cleared its blocks yet",
                       {{"reason", cleared.error().describe()}});
            }
            tell_([order, cleared] { order->cleared(cleared); });
          },
          [this, order](const caf::error& why) {
            tell_([order, text = caf::to_string(why)] { order->cleared(fail(error_code::internal, text)); });
          });
}

void guest_room::open(const instance_spec& spec, then<result<cluster::guest_session_ptr>> done) {
  to_(std::make_shared<const guest_order>(
      guest_order{.what = guest_order::kind::open, .spec = spec, .opened = std::move(done)}));
}

void guest_room::close(std::uint64_t session) {
  to_(std::make_shared<const guest_order>(guest_order{.what = guest_order::kind::close, .session = session}));
}

void guest_room::disconnect(std::uint64_t session) {
  to_(std::make_shared<const guest_order>(guest_order{.what = guest_order::kind::disconnect, .session = session}));
}

void guest_room::run(std::uint64_t session, std::vector<memory::submission> entries, bool late,
                     then<std::vector<memory::completion>> done) {
  to_(std::make_shared<const guest_order>(guest_order{.what = guest_order::kind::run,
                                                      .session = session,
                                                      .entries = std::move(entries),
                                                      .is_late = late,
                                                      .ran = std::move(done)}));
}

void guest_room::find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                            then<std::vector<memory::slab_place>> done) {
  to_(std::make_shared<const guest_order>(guest_order{.what = guest_order::kind::find_slabs,
                                                      .instance = instance,
                                                      .slabs = std::move(which),
                                                      .found = std::move(done)}));
}

void guest_room::clear_node(then<result<std::uint64_t>> done) {
  to_(std::make_shared<const guest_order>(
      guest_order{.what = guest_order::kind::clear_node, .cleared = std::move(done)}));
}

}  // namespace cenote
