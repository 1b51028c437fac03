#pragma once
// Lists whose links lie in the elements: they need no heap, and an element is removed in constant time.

#include <atomic>
#include <cstddef>

namespace vdnn {

template <class Element>
struct ListLinks {
  Element* previous = nullptr;
  Element* next = nullptr;
  bool linked = false;
};

// Not synchronised; does not own its elements. `kLinks` is the member that links elements of this list.
template <class Element, ListLinks<Element> Element::*kLinks>
class IntrusiveList {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  static bool contains(const Element& element) { return (element.*kLinks).linked; }

  // front() and back() return null if the list is empty.
  Element* front() const { return front_; }
  Element* back() const { return back_; }
  // The element after `element`; null at the end.
  static Element* next(const Element& element) { return (element.*kLinks).next; }

  // The element must not be in a list by these links.
  void push_back(Element& element) {
    element.*kLinks = {.previous = back_, .next = nullptr, .linked = true};
    (back_ == nullptr ? front_ : (back_->*kLinks).next) = &element;
    back_ = &element;
    ++size_;
  }
  // The element must be in this list.
  void erase(Element& element) {
    const ListLinks<Element> links = element.*kLinks;
    (links.previous == nullptr ? front_ : (links.previous->*kLinks).next) = links.next;
    (links.next == nullptr ? back_ : (links.next->*kLinks).previous) = links.previous;
    element.*kLinks = {};
    --size_;
  }
  void erase_if_there(Element& element) {
    if (contains(element)) {
      erase(element);
    }
  }

 private:
  Element* front_ = nullptr;
  Element* back_ = nullptr;
  std::size_t size_ = 0;
};

// A stack to which any thread pushes, and from which one thread takes all elements in one call. An element
// must not be pushed again until it has been taken.
template <class Element, Element* Element::*kNext>
class IntrusiveStack {
 public:
  void push(Element& element) {
    element.*kNext = top_.load(std::memory_order_relaxed);
    while (!top_.compare_exchange_weak(element.*kNext, &element, std::memory_order_release,
                                       std::memory_order_relaxed)) {
    }
  }
  // Removes all elements. Returns the one that was pushed last, chained to the earlier ones.
  Element* take_all() { return top_.exchange(nullptr, std::memory_order_acquire); }

 private:
  std::atomic<Element*> top_{nullptr};
};

}  // namespace vdnn
