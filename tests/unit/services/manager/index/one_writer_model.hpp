// A writer that stores one word after the other and a reader beside it, in every order of steps. Stores wait in
// buffers, and in Arm's order loads may stay open: see memory/model/weak_memory.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/memory/model/weak_memory.hpp"

namespace one_writer_model {

using cenote::model::memory_order_model;
using cenote::model::open_loads;
using cenote::model::store_buffer;

inline constexpr std::size_t words = 6;
inline constexpr std::uint8_t answered = 0xff;  ///< the reader's last step

struct store_step {
  std::uint8_t word = 0;
  std::uint8_t value = 0;
  bool is_release = true;
};

struct state {
  std::array<std::uint8_t, words> memory{};
  store_buffer stores{};
  open_loads loads{};
  std::uint8_t written = 0;  ///< steps of the writer
  std::uint8_t step = 0;     ///< of the reader
  std::array<std::uint8_t, words> loaded{};
  bool is_answer = false;  ///< else the reader would start again, or the word was not its
  bool is_retry = false;

  [[nodiscard]] auto all() const {
    return std::tuple(memory, stores.size, stores.words, stores.values, stores.older_loads, loads.size, loads.words,
                      loads.hopes, written, step, loaded, is_answer, is_retry);
  }
  bool operator<(const state& other) const { return all() < other.all(); }
};

/// A model has the memory in the beginning, the writer's `program`, and of the reader: `source(state)`, the word that
/// its step loads; `proceed(state&, word, value)`; `may_pass(word)`, whether that load may stay open;
/// `is_wrong(state)` and `answer(state)` of one that is through.
template <class Model>
void add_read_steps(std::vector<state>& all, const state& origin, const Model& model, memory_order_model order) {
  if (origin.step == answered) return;
  const std::uint8_t word = model.source(origin);
  const auto add = [&](state next, std::uint8_t value) {
    model.proceed(next, word, value);
    all.push_back(std::move(next));
  };
  if (!origin.loads.has(word, origin.loads.size)) add(origin, origin.memory[word]);
  if (order != memory_order_model::arm || !model.may_pass(word) || origin.loads.full()) return;
  for (std::uint8_t hope = 0; hope <= 3; ++hope) {
    state open = origin;
    open.loads.push(word, hope);
    add(std::move(open), hope);
  }
}

inline void add_memory_steps(std::vector<state>& all, const state& origin, memory_order_model order) {
  for (std::size_t i = 0; i < store_buffer::capacity; ++i) {
    if (!origin.stores.may_leave(i, order)) continue;
    state next = origin;
    next.memory[next.stores.word_at(i)] = next.stores.values[i];
    next.stores.remove(i);
    all.push_back(next);
  }
  for (std::size_t i = 0; i < origin.loads.size; ++i) {
    const std::uint8_t word = origin.loads.words[i];
    if (origin.loads.has(word, i) || origin.memory[word] != origin.loads.hopes[i]) continue;
    state next = origin;
    next.loads.remove(i);
    all.push_back(next);
  }
}

struct search {
  std::size_t states = 0;
  bool is_wrong = false;
  bool is_retried = false;
  std::set<std::uint8_t> answers{};
};

template <class Model>
search explore(const Model& model, memory_order_model order) {
  search found;
  state first;
  first.memory = model.memory;
  std::set<state> seen{first};
  std::deque<state> open{first};
  while (!open.empty()) {
    const state origin = open.front();
    open.pop_front();
    ++found.states;
    std::vector<state> all;
    if (origin.written < model.program.size() && !origin.stores.full()) {
      state next = origin;
      const store_step step = model.program[next.written++];
      next.stores.push(step.word, step.value, step.is_release, 0);
      all.push_back(next);
    }
    add_read_steps(all, origin, model, order);
    add_memory_steps(all, origin, order);
    for (const state& next : all) {
      if (seen.insert(next).second) open.push_back(next);
    }
    if (origin.step != answered || origin.loads.size != 0) continue;
    found.is_wrong |= model.is_wrong(origin);
    found.is_retried |= origin.is_retry;
    if (origin.is_answer) found.answers.insert(model.answer(origin));
  }
  return found;
}

inline constexpr std::array all_orders{memory_order_model::tso, memory_order_model::pso, memory_order_model::arm};

}  // namespace one_writer_model
